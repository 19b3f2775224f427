"""Random histories of a table: writes, deletes, compaction, evolution, partitions, time travel."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa

import neve
from neve import TableOptions
from neve.catalog.lake import Lake
from neve.catalog.table import Table

OPTIONS = TableOptions(background=False, memtable_bytes=1 << 20)
_FIELDS: list["pa.Field[pa.DataType]"] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("day", pa.date32()),
    pa.field("name", pa.string()),
    pa.field("amount", pa.float64()),
    pa.field("small", pa.int32()),
    pa.field("price", pa.decimal128(9, 2)),
    pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("place", pa.struct([("x", pa.int32()), ("y", pa.string())])),
]
SCHEMA = pa.schema(_FIELDS)
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_KEYS = 60


class History:
    """One table and the dice that decide what happens to it."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        format_version: int,
        partition_by: list[str],
        replaces_sources: bool = False,
    ) -> None:
        """Begin; `replaces_sources`: columns of former partitions go, others take their names."""
        self.random = Random(seed)
        self.lake: Lake = neve.open(folder)
        self.table: Table = self.lake.create_table(
            "shop.orders",
            schema=SCHEMA,
            primary_key=["id"],
            partition_by=partition_by,
            properties={"format-version": str(format_version)},
            options=OPTIONS,
        )
        self._added = 0
        self._replaces_sources = replaces_sources

    def step(self) -> None:
        """Do one thing, then make it a Version."""
        steps = (
            (8, self._upsert),
            (3, self._delete),
            (2, self._compact),
            (1, lambda: self.table.compact(full=True)),
            (2, self._evolve),
            (1, self._partition),
            (1, self._rollback),
            (1, lambda: self.table.tag(f"t{self.random.randrange(3)}")),
            (1, self._expire),
            (1, self._reopen),
            (3 if self._replaces_sources else 0, self._replace_source),
        )
        weights = [weight for weight, _ in steps]
        self.random.choices([act for _, act in steps], weights)[0]()
        self.table.flush()

    def _row(self, key: int) -> dict[str, object]:
        dice = self.random
        row: dict[str, object] = {
            "id": key,
            "day": (_BEGIN + timedelta(days=key % 5)).date(),
            "name": dice.choice([None, "anna", "böse", "x" * 30, f"n{key}"]),
            "amount": dice.choice([None, 1.5, -0.0, float(key)]),
            "small": dice.choice([None, key, -key]),
            "price": None,
            "at": _BEGIN + timedelta(hours=dice.randrange(100)),
            "tags": dice.choice([None, [], ["a", "b"]]),
            "place": dice.choice([None, {"x": key, "y": "here"}]),
        }
        names = set(self.table.schema.arrow_schema.names)
        return {name: value for name, value in row.items() if name in names}

    def _upsert(self) -> None:
        count = self.random.randrange(1, 20)
        keys = self.random.sample(range(_KEYS), count)
        self.table.upsert([self._row(key) for key in keys])

    def _delete(self) -> None:
        self.table.delete_many(self.random.sample(range(_KEYS), 5))

    def _compact(self) -> None:
        self.table.compact()

    def _evolve(self) -> None:
        names = self.table.schema.arrow_schema.names
        with self.table.evolve() as change:
            match self.random.randrange(4):
                case 0:
                    self._added += 1
                    change.add_column(f"extra{self._added}", "string")
                case 1 if "small" in names and self.table.schema.column("small").type == pa.int32():
                    change.widen_column("small", "long")
                case 2 if "name" in names:
                    change.rename_column("name", f"called{self._added}")
                case _ if "tags" in names:
                    change.drop_column("tags")
                case _:
                    self._added += 1
                    change.add_column(f"extra{self._added}", "int")

    def _partition(self) -> None:
        ways: list[list[str]] = [[], ["bucket(2, id)"], ["day"], ["month(at)", "truncate(20, id)"]]
        with self.table.evolve() as change:
            change.set_partition_by(self.random.choice(ways))

    def _replace_source(self) -> None:
        """Let another column have the name of one that partitions were made of."""
        self._added += 1
        with self.table.evolve() as change:
            change.set_partition_by(self.random.choice([["bucket(2, id)"], ["month(at)"]]))
            if "name" in self.table.schema.arrow_schema.names:
                if self.random.randrange(2):
                    change.drop_column("name")
                else:
                    change.rename_column("name", f"name{self._added}")
            change.add_column("name", "string")
        self._upsert()
        self.table.flush()
        with self.table.evolve() as change:
            change.set_partition_by(["name"])

    def _rollback(self) -> None:
        numbers = self.table.history().column("version").to_numpy()
        self.table.rollback(int(self.random.choice(numbers)))

    def _expire(self) -> None:
        self.table.expire(keep_last=3)
        self.table.collect_garbage(dry_run=False)

    def _reopen(self) -> None:
        self.table.close()
        location = self.lake.location
        self.lake.close()
        self.lake = neve.open(location)
        self.table = self.lake.table("shop.orders", options=OPTIONS)

    def close(self) -> None:
        self.table.close()
        self.lake.close()
