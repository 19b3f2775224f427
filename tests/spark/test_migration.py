"""Tables of others become tables of neve: every row that is live there, once, or nothing."""

import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.errors import (
    AlreadyExists,
    InvalidArgument,
    NeveError,
    NotFound,
    SchemaMismatch,
    Unavailable,
)

NAME = "a.b"
ROWS = [
    {
        "id": number,
        "city": f"c{number % 3}" if number % 5 else None,
        "amount": Decimal(number) / 4,
        "day": date(2024, 1, 1 + number % 20),
        "at": datetime(2024, 3, 1, number % 24, tzinfo=UTC),
        "tags": [str(number), None],
    }
    for number in range(60)
]
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "city": pa.string(),
    "amount": pa.decimal128(10, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "tags": pa.list_(pa.string()),
}
TABLE = pa.Table.from_pylist(ROWS, schema=pa.schema(COLUMNS))


def rows_of(lake: Path) -> list[dict[str, object]]:
    with neve.open(lake) as catalog:
        table = catalog.table(NAME, read_only=True)
        assert table.verify().is_sound
        found: list[dict[str, object]] = table.scan().to_arrow().sort_by("id").to_pylist()
        return found


def is_there(lake: Path) -> bool:
    with neve.open(lake) as catalog:
        return catalog.table_exists(NAME)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a directory of two Parquet files."""
    place = tmp_path / "source"
    place.mkdir()
    pq.write_table(TABLE.slice(0, 25), place / "a.parquet")
    pq.write_table(TABLE.slice(25), place / "b.parquet")
    return place


# Parquet


def test_a_parquet_directory_becomes_a_table(spark: SparkSession, source: Path, lake: Path) -> None:
    outcome = ns.migrate(spark, source, lake, NAME, primary_key=["id"], partition_by=["month(day)"])

    assert outcome.rows_written == 60
    assert rows_of(lake) == ROWS


def test_partitions_that_directories_are_named_for_are_columns(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    pq.write_to_dataset(TABLE.select(["id", "city"]), tmp_path / "hive", partition_cols=["city"])

    ns.migrate(spark, tmp_path / "hive", lake, NAME, primary_key=["id"], partition_by=["city"])

    assert rows_of(lake) == [{"id": row["id"], "city": row["city"]} for row in ROWS]


def test_keys_that_are_there_twice_are_shown_and_nothing_is_left(
    spark: SparkSession, source: Path, lake: Path
) -> None:
    with pytest.raises(NeveError, match="several rows of one key, such as"):
        ns.migrate(spark, source, lake, NAME, primary_key=["day"])

    assert not is_there(lake)


def test_of_keys_that_are_there_twice_the_last_by_a_column_stays(
    spark: SparkSession, source: Path, lake: Path
) -> None:
    pq.write_table(
        pa.table({"id": [1, 1, 2], "version": [5, 9, 1]}), source.parent / "twice.parquet"
    )

    ns.migrate(
        spark, source.parent / "twice.parquet", lake, NAME, primary_key=["id"], order_by="version"
    )

    assert rows_of(lake) == [{"id": 1, "version": 9}, {"id": 2, "version": 1}]


def test_a_key_that_is_null_is_refused_and_nothing_is_left(
    spark: SparkSession, source: Path, lake: Path
) -> None:
    with pytest.raises(SchemaMismatch):
        ns.migrate(spark, source, lake, NAME, primary_key=["city", "id"])

    assert not is_there(lake)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"primary_key": ["missing"]}, NeveError),
        ({"primary_key": []}, InvalidArgument),
        ({"format": "orc"}, InvalidArgument),
        ({"source": "nowhere"}, NotFound),
        ({"source": "nowhere", "format": "iceberg"}, NotFound),
        ({"partition_by": ["day(city)"]}, NeveError),
    ],
    ids=["no such key", "no key", "no such format", "no such place", "no metadata", "partition"],
)
def test_what_cannot_be_is_refused_before_a_table_is_there(
    spark: SparkSession, source: Path, lake: Path, given: dict[str, object], error: type[NeveError]
) -> None:
    place = source.parent / str(given.pop("source", source))
    asked = {"primary_key": ["id"]} | given

    with pytest.raises(error):
        ns.migrate(spark, place, lake, NAME, **asked)  # type: ignore[arg-type]  # that is the test

    assert not is_there(lake)


def test_a_directory_without_parquet_is_refused(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(InvalidArgument, match="no Parquet files"):
        ns.migrate(spark, tmp_path / "empty", lake, NAME, primary_key=["id"])


def test_a_taken_name_stays_what_it_is(spark: SparkSession, source: Path, lake: Path) -> None:
    ns.migrate(spark, source, lake, NAME, primary_key=["id"])

    with pytest.raises(AlreadyExists):
        ns.migrate(spark, source, lake, NAME, primary_key=["id"])

    assert rows_of(lake) == ROWS


# Iceberg


@pytest.fixture
def iceberg_table(tmp_path: Path) -> Iterator[neve.Table]:
    """Yield a table whose Iceberg form has vectors, partitions and a column that came later."""
    with neve.open(tmp_path / "other") as other:
        table = other.create_table(
            "x.y", pa.schema(COLUMNS), ["id"], partition_by=["bucket(2, id)"]
        )
        table.upsert([{**row, "city": "old"} for row in ROWS])
        table.flush()
        table.upsert([{**row} for row in ROWS])
        table.delete(3)
        with table.evolve() as evolution:
            evolution.rename_column("city", "town")
            evolution.add_column("note", "string")
        table.flush()
        yield table


@pytest.mark.parametrize("named", ["metadata", "directory"])
def test_an_iceberg_table_keeps_its_live_rows_and_its_present_columns(
    spark: SparkSession, iceberg_table: neve.Table, lake: Path, named: str
) -> None:
    metadata = iceberg_table.iceberg_metadata()
    place = metadata if named == "metadata" else metadata.rpartition("/metadata/")[0]

    ns.migrate(spark, place, lake, NAME, format="iceberg", primary_key=["id"])

    expected = [
        {**{("town" if name == "city" else name): row[name] for name in row}, "note": None}
        for row in ROWS
        if row["id"] != 3
    ]
    assert rows_of(lake) == expected


def test_deletes_that_cannot_be_applied_are_refused(
    spark: SparkSession,
    iceberg_table: neve.Table,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_scan: object) -> list[object]:
        raise ValueError("equality deletes are not supported")

    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", refuse)

    with pytest.raises(InvalidArgument, match="equality deletes") as caught:
        ns.migrate(
            spark,
            iceberg_table.iceberg_metadata(),
            lake,
            NAME,
            format="iceberg",
            primary_key=["id"],
        )

    assert "Compact it with its own engine first" in str(caught.value)
    assert not is_there(lake)


# Delta


def test_without_its_library_a_delta_table_is_refused_with_what_to_install(
    spark: SparkSession, source: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)

    with pytest.raises(Unavailable, match="pip install deltalake"):
        ns.migrate(spark, source, lake, NAME, format="delta", primary_key=["id"])


@pytest.fixture
def deltalake() -> ModuleType:
    found: ModuleType = pytest.importorskip("deltalake")
    return found


def test_a_delta_table_keeps_its_live_rows_and_its_partitions(
    spark: SparkSession, tmp_path: Path, lake: Path, deltalake: ModuleType
) -> None:
    place = str(tmp_path / "delta")
    deltalake.write_deltalake(place, TABLE.slice(0, 30), partition_by=["city"])
    deltalake.write_deltalake(place, TABLE.slice(30), mode="append")
    deltalake.DeltaTable(place).delete("id = 7")

    ns.migrate(spark, place, lake, NAME, format="delta", primary_key=["id"])

    assert rows_of(lake) == [row for row in ROWS if row["id"] != 7]


def test_rows_that_a_deletion_vector_marks_are_left_out(
    spark: SparkSession, tmp_path: Path, lake: Path, deltalake: ModuleType
) -> None:
    place = tmp_path / "delta"
    mark_in_delta(deltalake, place, TABLE.select(["id", "city"]), [0, 2, 59])

    ns.migrate(spark, place, lake, NAME, format="delta", primary_key=["id"])

    expected = [{"id": r["id"], "city": r["city"]} for r in ROWS if r["id"] not in {0, 2, 59}]
    assert rows_of(lake) == expected


def test_a_delta_table_with_mapped_columns_is_refused(
    spark: SparkSession, tmp_path: Path, lake: Path, deltalake: ModuleType
) -> None:
    place = tmp_path / "delta"
    mark_in_delta(
        deltalake,
        place,
        TABLE.select(["id", "city"]),
        [],
        configuration={"delta.columnMapping.mode": "name"},
    )

    with pytest.raises(InvalidArgument, match="column mapping"):
        ns.migrate(spark, place, lake, NAME, format="delta", primary_key=["id"])

    assert not is_there(lake)


def mark_in_delta(
    deltalake: ModuleType,
    place: Path,
    rows: pa.Table,
    marked: list[int],
    configuration: dict[str, str] | None = None,
) -> None:
    """Write a Delta table of one file with a vector in its log, as Delta's protocol says."""
    deltalake.write_deltalake(str(place), rows)
    log = place / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }
        if "metaData" in action:
            action["metaData"]["configuration"] = configuration or {}
        if "add" in action and marked:
            bitmap = struct.pack("<i", 1681511377) + BitMap64(marked).serialize()
            action["add"]["deletionVector"] = {
                "storageType": "i",
                "pathOrInlineDv": z85(bitmap + bytes(-len(bitmap) % 4)),
                "sizeInBytes": len(bitmap),
                "cardinality": len(marked),
            }
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def z85(payload: bytes) -> str:
    """Encode bytes, a multiple of four of them, as ZeroMQ's RFC 32 says."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (number,) in struct.iter_unpack(">I", payload):
        text += "".join(digits[number // 85**place % 85] for place in range(4, -1, -1))
    return text
