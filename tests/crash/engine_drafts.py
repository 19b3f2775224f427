"""Evolutions drawn at random: what is asked of the table, and what the model is told of it.

Names come from a small pool, so that columns that went leave theirs to others of another type, and
partitions are made of whatever columns there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import pyarrow as pa

from neve.catalog.evolution import Evolution
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import Column
from neve.testing.model_table import Added, ColumnChange, DefaultSet, Dropped, Renamed
from tests.crash.engine_rows import (
    MOMENT,
    NARROW_DECIMAL,
    WIDE_DECIMAL,
    other_columns,
    value_of,
)

NAMES: Final = ("word", "amount", "share", "at", "price", "one", "two", "three", "four", "five")
OTHERS_MIN: Final = 2
OTHERS_MAX: Final = 7
_KINDS: Final = (
    *(pa.int32(), pa.int64(), pa.float32(), pa.string()),
    *(pa.bool_(), pa.date32(), MOMENT, NARROW_DECIMAL),
)
_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
    NARROW_DECIMAL: WIDE_DECIMAL,
}


@dataclass(slots=True)
class Draft:
    """An evolution under way, with what it makes of rows."""

    evolution: Evolution
    spec: PartitionSpec
    """How the table is divided now."""
    rng: Random
    changes: list[ColumnChange]
    partition_by: list[str] | None = None

    def draw(self) -> None:
        """Ask for one to three changes, and perhaps for other partitions."""
        for change in self.rng.choices(list(_CHANGES), list(_CHANGES.values()), k=3):
            change(self)
            if self.rng.random() < 0.5:
                break
        if self.rng.random() < 0.3:
            self.divide()

    def add(self) -> None:
        if len(self._others) < OTHERS_MAX:
            kind = self.rng.choice(_KINDS)
            default = value_of(kind, self.rng) if self.rng.random() < 0.5 else None
            nullable = default is None or self.rng.random() < 0.5
            name = self._free_name()
            self.evolution.add_column(name, kind, default=default, nullable=nullable)
            self.changes.append(Added(name, default))

    def drop(self) -> None:
        needed = {field.source_id for field in self.spec.fields}
        needed.update(self.evolution.schema.rules.uses)
        free = [column for column in self._others if column.field_id not in needed]
        if free and len(self._others) > OTHERS_MIN:
            name = self.rng.choice(free).name
            self.evolution.drop_column(name)
            self.changes.append(Dropped(name))

    def rename(self) -> None:
        old = self.rng.choice(self.evolution.schema.columns).name
        new = self._free_name()
        self.evolution.rename_column(old, new)
        self.changes.append(Renamed(old, new))

    def move(self) -> None:
        name, other = self.rng.sample(self.evolution.schema.arrow_schema.names, 2)
        match self.rng.randrange(3):
            case 0:
                self.evolution.move_column(name, first=True)
            case 1:
                self.evolution.move_column(name, after=other)
            case _:
                self.evolution.move_column(name, before=other)

    def widen(self) -> None:
        narrow = [column for column in self._others if column.type in _WIDER]
        if narrow:
            column = self.rng.choice(narrow)
            self.evolution.widen_column(column.name, _WIDER[column.type])

    def set_default(self) -> None:
        column = self.rng.choice(self._others)
        default = value_of(column.type, self.rng)
        if column.nullable and self.rng.random() < 0.3:
            default = None
        self.evolution.set_default(column.name, default)
        self.changes.append(DefaultSet(column.name, default))

    def relax(self) -> None:
        self.evolution.make_nullable(self.rng.choice(self._others).name)

    def divide(self) -> None:
        """Divide by one column or two, or not at all; last, so that names stay."""
        columns = self.rng.sample(self.evolution.schema.columns, self.rng.choice((0, 1, 1, 2)))
        texts = [self.rng.choice(_transforms(column)) for column in columns]
        self.partition_by = [text for text in texts if text]
        self.evolution.set_partition_by(self.partition_by)

    @property
    def _others(self) -> list[Column]:
        return other_columns(self.evolution.schema)

    def _free_name(self) -> str:
        divided = {field.name for field in self.spec.fields}
        taken = {*self.evolution.schema.arrow_schema.names, *divided}
        return self.rng.choice([name for name in NAMES if name not in taken])


_CHANGES: Final[Mapping[Callable[[Draft], None], int]] = {
    Draft.add: 4,
    Draft.drop: 3,
    Draft.rename: 3,
    Draft.widen: 3,
    Draft.move: 2,
    Draft.set_default: 1,
    Draft.relax: 1,
}


def _transforms(column: Column) -> list[str]:
    """Return the ways to divide by a column that make few parts; "" when there is none."""
    name, kind = column.name, column.type
    if kind == pa.string():
        return [f"truncate(1, {name})", f"bucket(2, {name})", name]
    if kind in (pa.int32(), pa.int64()):
        return [f"truncate(40, {name})", f"bucket(3, {name})"]
    if kind in (NARROW_DECIMAL, WIDE_DECIMAL):
        return [f"truncate(400, {name})", f"bucket(2, {name})"]
    if kind == pa.date32():
        return [f"year({name})", f"month({name})", f"day({name})"]
    if kind == MOMENT:
        return [f"month({name})", f"day({name})"]
    return [name] if kind == pa.bool_() else [""]
