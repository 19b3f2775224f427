"""Divide rows into partitions as Iceberg does, and skip those that a filter cannot need.

It prints:

    ts_day     day         [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    id_bucket  bucket[16]  [4, 7]
    2024-01-01: skip
    2024-01-02: read
"""

from datetime import UTC, datetime

import pyarrow as pa

from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import plain_of
from neve.model.predicate import col
from neve.model.pruning import ColumnFacts, Match, match, project
from neve.model.schema import TableSchema

schema = TableSchema.from_arrow(
    pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", tz="UTC")}), primary_key=["id"]
)
spec = PartitionSpec.parse(["day(ts)", "bucket(16, id)"], schema)

rows = pa.RecordBatch.from_pydict(
    {"id": [1, 5], "ts": [datetime(2024, 1, day, 12, tzinfo=UTC) for day in (1, 2)]},
    schema=schema.arrow_schema,
)
partitions = spec.values(rows, schema)
for field, values in zip(spec.fields, partitions, strict=True):
    print(f"{field.name:10} {field.transform!s:11} {values.to_pylist()}")

# A filter on a column says something about the partition values of the rows it matches.
wanted = project((col("ts") >= "2024-01-02T00:00:00+00:00").bind(schema), spec)
day_id = spec.fields[0].field_id
for day in partitions[0]:
    facts = {day_id: ColumnFacts.of_value(plain_of(day))}
    print(f"{day}: {'skip' if match(wanted, facts) is Match.NEVER else 'read'}")
