"""KeyPartitions: the partition of a row, told by its key alone.

When every partition field is made of a key column, a row of a key can only be in the files of one
partition. So whoever looks for a key opens files of that partition only:

    partition by bucket(4, id), key id          partition by day(ts), key id
    id = 7  ──►  bucket 2  ──►  its files       id = 7  ──►  all files

Each spec of a table is judged by itself; files of specs that the key does not determine may hold
any key. Floats do not determine a partition: keys take -0.0 for 0.0, partitions do not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import pyarrow as pa

from neve.errors import Corruption, SchemaMismatch
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import PartitionSpec
from neve.model.partitions import Positions, newest_form, partition_groups
from neve.model.plain_values import PlainValue, is_float, to_plain
from neve.model.schema import Column, TableSchema
from neve.model.single_value import encode_single_value
from neve.model.transforms import Transform

Place: TypeAlias = tuple[bytes | None, ...]
"""Stored values of a partition, in the order of the spec's fields."""

_PLAIN_TYPES: Final = frozenset({int, str, bytes})


@dataclass(frozen=True, slots=True)
class _KeyField:
    """A partition field, and the place in the key of the column it is made of."""

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
        # Safe on its own: a place made twice is the same place.
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
        """Return the partition of a file; None when its values tell none: it may hold any key."""
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
    """What the key tells of the partitions of a table, under each of its specs."""

    def __init__(
        self, schema: TableSchema, encoder: KeyEncoder, spec_of: Callable[[int], PartitionSpec]
    ) -> None:
        self._schema = schema
        self._encoder = encoder
        self._spec_of = spec_of
        # Safe on its own: what is made twice is the same.
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
    """Keys that are looked for in many files, each in those of its partition only; one thread."""

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
