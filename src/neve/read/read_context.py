"""TableContext: how rows of a table are understood under one of its schemas."""

from collections.abc import Callable, Mapping

from neve.errors import InvalidArgument, SchemaMismatch
from neve.keys.columns import KEY_BYTES_MAX, KeyColumn, value_codec
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.display import listed, shown
from neve.model.partition_spec import PartitionSpec
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.table.partitions import KeyPartitions
from neve.table.schema_mapping import SchemaMapping


class TableContext:
    """The schema rows are given in, with what decodes them; safe for many threads."""

    __slots__ = (
        "_encode_value",
        "_mappings",
        "_schema_of",
        "codec",
        "encoder",
        "is_single_key",
        "partitions",
        "schema",
        "spec_of",
        "words",
    )

    def __init__(
        self,
        schema: TableSchema,
        *,
        schema_of: Callable[[int], TableSchema],
        spec_of: Callable[[int], PartitionSpec] | None = None,
    ) -> None:
        self.schema = schema
        self.spec_of = spec_of
        """Partition specs by id; None: files are not told apart by their partition."""
        self.codec = RowCodec(schema)
        keys = schema.key_columns
        self.encoder = KeyEncoder(
            [column.type for column in keys], [column.name for column in keys]
        )
        self._encode_value = value_codec(KeyColumn.of(keys[0].name, keys[0].type)).encode
        self.words = KeyHashes(self.encoder)
        self.partitions = None if spec_of is None else KeyPartitions(schema, self.encoder, spec_of)
        """What a key tells of the partition of its row; None: nothing."""
        self.is_single_key = len(keys) == 1
        self._schema_of = schema_of
        # Safe on its own: a mapping made twice is the same mapping.
        self._mappings: dict[int, SchemaMapping] = {}

    def mapping_from(self, schema_id: int) -> SchemaMapping:
        """Return the way from an older schema of the table to this one."""
        mapping = self._mappings.get(schema_id)
        if mapping is None:
            source = (
                self.schema if schema_id == self.schema.schema_id else self._schema_of(schema_id)
            )
            mapping = SchemaMapping(source, self.schema)
            self._mappings[schema_id] = mapping
        return mapping

    def encode_value(self, value: object) -> bytes:
        """Return the bytes of a key of one column: what the encoder gives for a tuple of it."""
        encoded = self._encode_value(value)
        return encoded if len(encoded) <= KEY_BYTES_MAX else self.encoder.encode((value,))

    def encode_key(self, key: object) -> bytes:
        """Return the bytes of a key: a value, a tuple in key order, or a dict of key columns."""
        if type(key) is tuple:
            return self.encoder.encode(key)
        try:
            if self.is_single_key:
                return self.encode_value(key)
            return self.encoder.encode(key)  # type: ignore[arg-type]  # it says what is wrong
        except (SchemaMismatch, InvalidArgument):
            # No value of a key column is one, so only what is wrong already is looked at again.
            if not isinstance(key, Mapping):
                raise
        return self.encoder.encode(self._values_of(key))

    def _values_of(self, key: Mapping[object, object]) -> tuple[object, ...]:
        names = self.encoder.names
        wrong = [name for name in names if name not in key]
        wrong += [str(name) for name in key if name not in names]
        if wrong:
            raise SchemaMismatch(
                f"a dict of {listed([*map(str, key)]) or 'nothing'} is no key of the table",
                column=wrong[0],
                hint=f"Give the value of {shown(names[0])}, or a dict of it alone"
                if self.is_single_key
                else f"Give a tuple of {shown(tuple(names))}, or a dict of these alone",
            )
        return tuple(key[name] for name in names)
