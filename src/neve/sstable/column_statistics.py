"""What a Version keeps about the columns of a file: sizes, counts and bounds, by field id.

Every leaf of the schema has its compressed bytes, its values and how many of them are NULL. Inside
lists and maps that is all, as in Iceberg; elsewhere floats have their NaN count, and leaves that
prune have bounds in the form of `neve.model.plain_values`, for text and binaries at most 16 code
points or bytes.

SSTABLE-22  A lower bound is not above any value, an upper bound not below any. NaN is not counted
    as a value.
SSTABLE-23  A truncated bound is rounded outwards: truncation lowers it, so the last code point (or
    byte) of an upper bound that can be raised is raised, and the rest dropped. Where none can be
    raised, there is no upper bound.
SSTABLE-24  A lower bound of zero is −0.0 and an upper one +0.0, as they are one value to some
    readers and two to others.

Bounds of text and binaries are those in the Parquet footer, where the writer has computed them
already. It leaves out very long ones, which are computed here.

Leaves are the primitive columns that Parquet stores, including those inside nested ones:

    column type                          leaves, as Parquet names them
    primitive          a                 a
    struct             a                 a.x, a.y
    list               a                 a.list.element
    map                a                 a.key_value.key, a.key_value.value

Parquet keeps the leaves of a file in this order, depth first, and numbers them from 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.model.arrow_types import ArrowField, TypeKind, child_fields, field_id_of, kind_of
from neve.model.data_file import ColumnStatistics
from neve.model.plain_values import (
    PlainValue,
    encode_single_value,
    is_float,
    is_nan,
    less,
    plain_of,
    stored_array,
    stored_type,
)
from neve.model.row_lineage import LINEAGE_SCHEMA
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray


class _Step(Enum):
    """Steps from a nested column to its children."""

    ELEMENT = auto()
    KEY = auto()
    VALUE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One primitive column of a file."""

    column: str
    """Name of the top-level column it belongs to."""
    path: str
    field_id: int
    type: pa.DataType
    steps: tuple[int | _Step, ...]
    """From the top-level column to here; a number is a field of a struct."""

    @property
    def is_repeated(self) -> bool:
        """Whether a row can have any number of values, because of a list or map."""
        return any(isinstance(step, _Step) for step in self.steps)

    def values(self, column: ArrowArray) -> ArrowArray:
        """Return the leaf's values out of its column, in a type that kernels support.

        Where a struct is NULL, so are its fields; NULL and empty lists have no values.
        """
        inside = column
        for step in self.steps:
            inside = _step_into(inside, step)
        return stored_array(inside)


def leaves_of(schema: TableSchema) -> tuple[Leaf, ...]:
    """Return the leaves of a schema in the order Parquet has them."""
    return _leaves(schema.arrow_schema)


def _leaves(schema: pa.Schema) -> tuple[Leaf, ...]:
    return tuple(
        leaf
        for field in schema
        for leaf in _walk(field, column=field.name, path=field.name, steps=())
    )


def _walk(
    field: ArrowField, *, column: str, path: str, steps: tuple[int | _Step, ...]
) -> Iterator[Leaf]:
    inner = child_fields(field.type)
    if not inner:
        field_id = field_id_of(field)
        assert field_id is not None, "every field of a table's schema has an id"
        yield Leaf(column=column, path=path, field_id=field_id, type=field.type, steps=steps)
    elif pa.types.is_map(field.type):
        for child, step in zip(inner, (_Step.KEY, _Step.VALUE), strict=True):
            below = f"{path}.key_value.{child.name}"
            yield from _walk(child, column=column, path=below, steps=(*steps, step))
    elif pa.types.is_struct(field.type):
        for at, child in enumerate(inner):
            below = f"{path}.{child.name}"
            yield from _walk(child, column=column, path=below, steps=(*steps, at))
    else:
        below = f"{path}.list.element"
        yield from _walk(inner[0], column=column, path=below, steps=(*steps, _Step.ELEMENT))


def _step_into(array: ArrowArray, step: int | _Step) -> ArrowArray:
    if isinstance(step, int):
        inside: ArrowArray = pc.struct_field(array, [step])
        return inside
    # A NULL list may still span values; without such lists, the offsets bound exactly the values.
    compact = pc.drop_null(array) if array.null_count else array
    if step is _Step.ELEMENT:
        assert isinstance(compact, pa.ListArray)
        children: ArrowArray = compact.values
    else:
        assert isinstance(compact, pa.MapArray)
        children = compact.keys if step is _Step.KEY else compact.items
    offsets = compact.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    assert first is not None
    assert last is not None
    return children.slice(first, last - first)


LINEAGE_LEAVES: Final = _leaves(LINEAGE_SCHEMA)
"""Leaves of the columns of row lineage, which come after all others."""


# Arrow leaves bounds of more than 4,096 bytes out of a footer.
_FOOTER_LENGTH_MAX: Final = 1_024
BOUND_LENGTH_MAX: Final = 16
"""Code points of a text, bytes of a binary: Iceberg's truncate(16)."""

_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_BYTE_MAX: Final = 0xFF


def lower_bound(value: PlainValue, arrow_type: pa.DataType) -> bytes:
    """Return the single-value form of the lowest value, or of less."""
    if isinstance(value, float) and value == 0.0:
        value = -0.0
    return encode_single_value(arrow_type, _cut(value, arrow_type))


def upper_bound(value: PlainValue, arrow_type: pa.DataType) -> bytes | None:
    """Return the single-value form of the highest value, or of more; None when there is none."""
    if isinstance(value, float) and value == 0.0:
        value = 0.0
    cut = _cut(value, arrow_type)
    if cut is value or cut == value:
        return encode_single_value(arrow_type, value)
    raised = _raise_text(cut) if isinstance(cut, str) else _raise_bytes(cast("bytes", cut))
    return None if raised is None else encode_single_value(arrow_type, raised)


def _cut(value: PlainValue, arrow_type: pa.DataType) -> PlainValue:
    kind = kind_of(arrow_type)
    if kind in {TypeKind.STRING, TypeKind.BINARY}:
        assert isinstance(value, str | bytes)
        return value[:BOUND_LENGTH_MAX]
    return value


def _raise_text(text: str) -> str | None:
    for at in range(len(text) - 1, -1, -1):
        raised = ord(text[at]) + 1
        if raised in _SURROGATES:
            raised = _SURROGATES.stop
        if raised <= _CODE_POINT_MAX:
            return text[:at] + chr(raised)
    return None


def _raise_bytes(value: bytes) -> bytes | None:
    shortened = value.rstrip(bytes((_BYTE_MAX,)))
    return shortened[:-1] + bytes((shortened[-1] + 1,)) if shortened else None


@dataclass(slots=True)
class _Seen:
    """Statistics of one leaf in the groups so far."""

    valid_count: int = 0
    nan_count: int = 0
    lowest: PlainValue | None = None
    highest: PlainValue | None = None

    def include(self, lowest: PlainValue | None, highest: PlainValue | None) -> None:
        """Widen the bounds, unless there is no value."""
        # With NaN alone, Arrow bounds it by itself.
        if lowest is None or highest is None or is_nan(lowest):
            return
        if self.lowest is None or less(lowest, self.lowest):
            self.lowest = lowest
        if self.highest is None or less(self.highest, highest):
            self.highest = highest


@dataclass(slots=True)
class StatisticsCollector:
    """Collects statistics from the groups of one file as they are written."""

    leaves: Sequence[Leaf]
    bounded: frozenset[str]
    """Paths of the leaves that get bounds."""
    ascending: str | None = None
    """Path of a leaf whose first value is its lowest and whose last is its highest."""
    _seen: list[_Seen] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = [_Seen() for _ in self.leaves]

    def add(self, group: pa.RecordBatch) -> None:
        """Add the rows of a group."""
        columns = dict(zip(group.schema.names, group.columns, strict=True))
        for leaf, seen in zip(self.leaves, self._seen, strict=True):
            values = leaf.values(columns[leaf.column])
            seen.valid_count += len(values) - values.null_count
            if leaf.is_repeated:
                continue
            if is_float(leaf.type):
                seen.nan_count += pc.is_nan(values).true_count
            if leaf.path not in self.bounded:
                continue
            if leaf.path == self.ascending:
                seen.include(plain_of(values[0]), plain_of(values[-1]))
            elif not _is_text(leaf.type) or _longest(values) > _FOOTER_LENGTH_MAX:
                extremes = pc.min_max(values)
                seen.include(plain_of(extremes["min"]), plain_of(extremes["max"]))

    def finish(self, metadata: pq.FileMetaData) -> tuple[ColumnStatistics, ...]:
        """Return the statistics of all leaves, ascending by field id."""
        totals = [[0, 0] for _ in self.leaves]
        in_footer = [self._is_in_footer(leaf) for leaf in self.leaves]
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for at, total in enumerate(totals):
                chunk = row_group.column(at)
                total[0] += chunk.total_compressed_size
                total[1] += chunk.num_values
                bounds = chunk.statistics if in_footer[at] else None
                if bounds is not None and bounds.has_min_max:
                    self._seen[at].include(bounds.min, bounds.max)
        found = [
            ColumnStatistics(
                field_id=leaf.field_id,
                compressed_bytes=compressed,
                value_count=count,
                null_count=count - seen.valid_count,
                nan_count=seen.nan_count if is_float(leaf.type) and not leaf.is_repeated else None,
                lower=None if seen.lowest is None else lower_bound(seen.lowest, leaf.type),
                upper=None if seen.highest is None else upper_bound(seen.highest, leaf.type),
            )
            for leaf, seen, (compressed, count) in zip(self.leaves, self._seen, totals, strict=True)
        ]
        return tuple(sorted(found, key=lambda statistics: statistics.field_id))

    def _is_in_footer(self, leaf: Leaf) -> bool:
        return leaf.path in self.bounded and _is_text(leaf.type) and not leaf.is_repeated


def _is_text(arrow_type: pa.DataType) -> bool:
    return pa.types.is_string(arrow_type) or pa.types.is_binary(arrow_type)


def _longest(values: ArrowArray) -> int:
    """Return the number of bytes of the longest text or binary; 0 without one."""
    lengths = pc.binary_length(values)  # type: ignore[call-overload]  # of text or binaries
    return pc.max(lengths).as_py() or 0


def mean_length(values: ArrowArray) -> float:
    """Return the mean number of bytes of a leaf's values that are not NULL."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return stored_type(values.type).bit_width / 8
    lengths = pc.binary_length(values)  # type: ignore[call-overload]  # checked above
    mean = pc.mean(lengths).as_py()
    return 0.0 if mean is None else float(mean)
