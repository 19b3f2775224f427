"""Partitions of a table: rows split by partition, and the partition that a key determines.

    rows ──► rows 0, 3, 9   data/ts_day=2024-03-31/id_bucket=7/<id>.parquet
             rows 1, 2      data/ts_day=2024-04-01/id_bucket=2/<id>.parquet

The directory is for users, spelled as in Iceberg, escaped and truncated: the values in the manifest
count. Rows of a partition keep their order.

When every partition field is made of a key column, all rows of a key are in files of one partition,
and a search for the key opens only those files (`KeyPartitions`):

    partition by bucket(4, id), key id          partition by day(ts), key id
    id = 7  ──►  bucket 2  ──►  its files       id = 7  ──►  all files

This is decided for each spec of a table; files of specs that the key does not determine may hold
any key. Floats do not determine a partition: -0.0 and 0.0 are one key and two partitions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from neve.errors import Corruption, NotFound, SchemaMismatch
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.model.arrow_buffers import Positions, one_batch
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import (
    PartitionField,
    PartitionIdentity,
    PartitionSpec,
    newest_form,
    partition_groups,
)
from neve.model.plain_values import (
    PlainValue,
    decode_single_value,
    encode_single_value,
    is_float,
    to_plain,
)
from neve.model.schema import Column, TableSchema
from neve.model.transforms import Transform, partition_text

_SEGMENT_MAX: Final = 80
_SAFE: Final = "-_.:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition, and which of the rows are in it."""

    values: tuple[PartitionValue, ...]
    path: str
    positions: Positions | None
    """None: all rows."""


def split_by_partition(
    rows: pa.Table, spec: PartitionSpec, schema: TableSchema
) -> Iterator[Partition]:
    """Yield every partition that has rows, in the order in which they first occur."""
    if spec.is_unpartitioned:
        yield Partition(values=(), path="", positions=None)
        return
    batch = one_batch(rows)
    arrays = spec.values(batch, schema)
    for group in partition_groups(spec, arrays):
        segments = [
            _segment(field, array.type, value)
            for field, array, value in zip(spec.fields, arrays, group.plain, strict=True)
        ]
        yield Partition(values=group.values, path="/".join(segments), positions=group.positions)


def split_by_spec(
    rows: pa.Table, specs: Sequence[PartitionSpec], schema: TableSchema
) -> Iterator[tuple[PartitionSpec, pa.Table, Positions | None]]:
    """Yield the rows under the first spec that takes them, with their positions; None for all.

    A few extreme values have no partition under some specs. A row with such a value was written
    under another spec, and stays under it. Raises SchemaMismatch when that is not possible.
    """
    if len(specs) == 1:
        # Rows were checked with it before they were logged.
        yield specs[0], rows, None
        return
    left: Positions | None = None
    failure: SchemaMismatch | None = None
    for spec in specs:
        given = rows if left is None else rows.take(left)
        try:
            batch = one_batch(given)
            refused = refused_rows(batch, spec, schema)
        except NotFound:
            continue  # a column of the spec was dropped
        if not len(refused):
            yield spec, given, left
            return
        failure = failure or _failure(batch.take(refused[:1]), spec, schema)
        places = np.arange(rows.num_rows, dtype=np.int64) if left is None else left
        taken = np.setdiff1d(np.arange(given.num_rows), refused)
        if len(taken):
            yield spec, given.take(taken), places[taken]
        left = places[refused]
    if failure is not None:
        raise failure


def refused_rows(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: TableSchema, first: int = 0
) -> Positions:
    """Find the rows without a partition by bisection.

    Positions are counted from `first` on.
    """
    if _failure(batch, spec, schema) is None:
        return np.empty(0, np.int64)
    if batch.num_rows == 1:
        return np.array([first], np.int64)
    half = batch.num_rows // 2
    return np.concatenate(
        (
            refused_rows(batch.slice(0, half), spec, schema, first),
            refused_rows(batch.slice(half), spec, schema, first + half),
        )
    )


def _failure(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: TableSchema
) -> SchemaMismatch | None:
    try:
        spec.values(batch, schema)
    except SchemaMismatch as failure:
        return failure
    return None


def partition_of(
    values: tuple[PartitionValue, ...],
    spec: PartitionSpec,
    column_type: Callable[[int], pa.DataType],
) -> Partition:
    """Return the partition of rows that are all in one, from its values in the manifest.

    Its values have the newest types, whatever they were stored as. `column_type` returns types by
    field id, also of dropped columns.
    """
    stored = {each.field_id: each.value for each in values}
    segments = []
    for field in spec.fields:
        value = stored.get(field.field_id)
        type_ = field.transform.result_type(column_type(field.source_id))
        plain = None if value is None else decode_single_value(type_, value)
        segments.append(_segment(field, type_, plain))
    _, newest = PartitionIdentity(lambda _: spec, column_type).of_values(spec.spec_id, values)
    return Partition(values=newest, path="/".join(segments), positions=None)


def _segment(field: PartitionField, type_: pa.DataType, value: PlainValue | None) -> str:
    word = "null" if value is None else partition_text(field.transform, type_, value)
    return f"{quote(field.name, safe=_SAFE)}={quote(word, safe=_SAFE)}"[:_SEGMENT_MAX].rstrip("%.")


Place: TypeAlias = tuple[bytes | None, ...]
"""Stored values of a partition, in the order of the spec's fields."""

_PLAIN_TYPES: Final = frozenset({int, str, bytes})


@dataclass(frozen=True, slots=True)
class _KeyField:
    """A partition field, and the place of its source column in the key."""

    field_id: int
    transform: Transform
    place: int
    source: Column
    type: pa.DataType


class KeyPartitioning:
    """Partitions under one spec that the key determines; safe for many threads."""

    def __init__(
        self, spec: PartitionSpec, fields: tuple[_KeyField, ...], encoder: KeyEncoder
    ) -> None:
        self._spec = spec
        self._fields = fields
        self._encoder = encoder
        # Safe without a lock: a place made twice is the same.
        self._places: dict[tuple[PartitionValue, ...], Place | None] = {}

    def place_of(self, key: bytes) -> Place | None:
        """Return the partition of a key; None for one that has none, so that no row has it."""
        values = self._encoder.decode(key)
        found: list[bytes | None] = []
        for field in self._fields:
            value, source = values[field.place], field.source.type
            # Numbers, text and bytes are plain as they are.
            plain = value if type(value) in _PLAIN_TYPES else to_plain(value, source, column="")
            try:
                result = field.transform.apply_plain(cast("PlainValue", plain), source)
            except SchemaMismatch:
                return None
            found.append(encode_single_value(field.type, result))
        return tuple(found)

    def groups(self, keys: KeyArray) -> dict[Place, Positions] | None:
        """Return the positions of keys by partition, ascending in each; None if one has none."""
        columns = self._encoder.decode_arrays(keys)
        try:
            arrays = [
                field.transform.apply(columns[field.place], column=field.source.name)
                for field in self._fields
            ]
        except SchemaMismatch:
            return None
        return {
            tuple(each.value for each in group.values): group.positions
            for group in partition_groups(self._spec, arrays)
        }

    def place_of_file(self, file: DataFile) -> Place | None:
        """Return the partition of a file; None when it may hold any key."""
        known = self._places.get(file.partition, ())
        if known != ():
            return known
        place = self._read_place(file.partition)
        self._places[file.partition] = place
        return place

    def _read_place(self, partition: tuple[PartitionValue, ...]) -> Place | None:
        stored = {each.field_id: each.value for each in partition}
        found: list[bytes | None] = []
        for field in self._fields:
            value = stored.get(field.field_id)
            if value is None:
                return None
            try:
                found.append(newest_form(field.type, value))
            except Corruption:
                return None
        return tuple(found)


class KeyPartitions:
    """The partitions that a key determines, under each spec of a table."""

    def __init__(
        self, schema: TableSchema, encoder: KeyEncoder, spec_of: Callable[[int], PartitionSpec]
    ) -> None:
        self._schema = schema
        self._encoder = encoder
        self._spec_of = spec_of
        # Safe without a lock: an entry made twice is the same.
        self._by_spec: dict[int, KeyPartitioning | None] = {}

    def of_spec(self, spec_id: int) -> KeyPartitioning | None:
        """Return the partitions under a spec; None when the key does not determine them."""
        if spec_id not in self._by_spec:
            self._by_spec[spec_id] = self._made(self._spec_of(spec_id))
        return self._by_spec[spec_id]

    def place_of_file(self, file: DataFile) -> Place | None:
        """Return the partition of a file; None when it may hold any key."""
        partitioning = self.of_spec(file.spec_id)
        return None if partitioning is None else partitioning.place_of_file(file)

    def place_of_key(self, spec_id: int, key: bytes) -> Place | None:
        """Return the partition of a key under a spec; None when no row of the spec can have it."""
        partitioning = self.of_spec(spec_id)
        assert partitioning is not None, "only specs that the key determines are asked"
        return partitioning.place_of(key)

    def _made(self, spec: PartitionSpec) -> KeyPartitioning | None:
        places = {column.field_id: at for at, column in enumerate(self._schema.key_columns)}
        fields: list[_KeyField] = []
        for field in spec.fields:
            place = places.get(field.source_id)
            if place is None:
                return None
            source = self._schema.key_columns[place]
            if is_float(source.type):
                return None
            result = field.transform.result_type(source.type)
            fields.append(_KeyField(field.field_id, field.transform, place, source, result))
        return KeyPartitioning(spec, tuple(fields), self._encoder) if fields else None


class PartitionedKeys:
    """Keys to find in many files, each only in those of its partition; for one thread."""

    def __init__(self, keys: KeyArray, partitions: KeyPartitions) -> None:
        self._keys = keys
        self._partitions = partitions
        self._groups: dict[int, dict[Place, Positions] | None] = {}

    def positions_for(self, file: DataFile) -> Positions | None:
        """Return which of the keys may be in a file, ascending; None for all of them."""
        partitioning = self._partitions.of_spec(file.spec_id)
        place = None if partitioning is None else partitioning.place_of_file(file)
        if partitioning is None or place is None:
            return None
        if file.spec_id not in self._groups:
            self._groups[file.spec_id] = partitioning.groups(self._keys)
        groups = self._groups[file.spec_id]
        return None if groups is None else groups.get(place, _NONE)

    def keys_for(self, file: DataFile) -> KeyArray:
        """Return the keys that may be in a file, in their order."""
        positions = self.positions_for(file)
        return self._keys if positions is None else self._keys.take(positions)


_NONE: Positions = np.empty(0, np.int64)
