"""EntryEncoder: entries of manifests as bytes, for the files of one table in one format.

    files of spec 0 ──► ManifestForm 0 ──► ManifestCodec 0
    files of spec 1 ──► ManifestForm 1 ──► ManifestCodec 1       a manifest holds files of one spec

A manifest names the schema it was written under. This is the newest one that has the source columns
of the spec: the current schema may lack source columns of old partitions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.errors import Corruption
from neve.iceberg.delete_files import DeleteFiles
from neve.iceberg.iceberg_file import (
    DATA,
    IcebergFile,
    Locate,
    data_file,
    partition_types,
    partition_values,
    position_file,
    vector_file,
)
from neve.iceberg.pyiceberg_bridge import FieldSummary, ManifestCodec, ManifestEntry, ManifestForm
from neve.iceberg.schema_document import schema_document
from neve.model.data_file import DataFile
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import PlainValue, encode_single_value, is_nan, less
from neve.model.schema import TableSchema

FORMAT_WITH_VECTORS: Final = 3


@dataclass(frozen=True, slots=True)
class _SpecForm:
    codec: ManifestCodec
    spec: PartitionSpec
    types: tuple[pa.DataType, ...]


class EntryEncoder:
    """Describes files of one table to Iceberg."""

    def __init__(
        self,
        *,
        format_version: int,
        schemas: Mapping[int, TableSchema],
        specs: Mapping[int, PartitionSpec],
        locate: Locate,
        deletes: DeleteFiles,
    ) -> None:
        """Take definitions, and where deletes are in this format."""
        self._format_version = format_version
        self._schemas = schemas
        self._specs = specs
        self._locate = locate
        self._deletes = deletes
        self._forms: dict[int, _SpecForm] = {}

    def data_key(self, file: DataFile) -> str:
        """Return the key of a data file in a manifest."""
        return self._locate(file.path)

    def delete_key(self, file: DataFile) -> str:
        """Return the key of a data file's deletes in a manifest."""
        assert file.vector is not None
        location = self._locate(self._deletes.path(file))
        has_vectors = self._format_version >= FORMAT_WITH_VECTORS
        return delete_key(location, file.vector.offset if has_vectors else None)

    def partition(self, file: DataFile) -> tuple[PlainValue | None, ...]:
        """Partition of a file."""
        form = self._form(file.spec_id)
        return partition_values(file, form.spec, form.types)

    def describe(self, file: DataFile, *, content: int) -> IcebergFile:
        """Describe a data file, or its deletes."""
        partition = self.partition(file)
        if content == DATA:
            return data_file(file, partition, self._locate)
        vector = file.vector
        assert vector is not None
        file_bytes = self._deletes.file_bytes(file)
        if self._format_version >= FORMAT_WITH_VECTORS:
            return vector_file(file, vector, partition, self._locate, puffin_bytes=file_bytes)
        return position_file(
            file,
            vector,
            partition,
            self._locate,
            path=self._deletes.path(file),
            file_bytes=file_bytes,
        )

    def entry(
        self,
        described: IcebergFile,
        *,
        spec_id: int,
        status: int,
        snapshot_id: int | None,
        sequences: tuple[int | None, int | None],
    ) -> bytes:
        """Return the bytes of an entry; `sequences` are the numbers of its data and of its file."""
        return self._form(spec_id).codec.entry(
            ManifestEntry(
                status=status,
                snapshot_id=snapshot_id,
                sequence_number=sequences[0],
                file_sequence_number=sequences[1],
                file=described,
            )
        )

    def manifest(self, entries: list[bytes], *, spec_id: int, content: int) -> bytes:
        """Return the bytes of a manifest."""
        return self._form(spec_id).codec.manifest(entries, content=content)

    def summaries(
        self, partitions: list[tuple[PlainValue | None, ...]], *, spec_id: int
    ) -> tuple[FieldSummary, ...]:
        """Summarise the partitions of the files in a manifest, field by field."""
        types = self._form(spec_id).types
        return tuple(
            _summary([values[at] for values in partitions], arrow_type)
            for at, arrow_type in enumerate(types)
        )

    def _form(self, spec_id: int) -> _SpecForm:
        known = self._forms.get(spec_id)
        if known is None:
            spec = self._specs.get(spec_id)
            if spec is None:
                raise Corruption(f"the table never had partition spec {spec_id}")
            schema = self._schema_for(spec)
            form = ManifestForm(
                format_version=self._format_version,
                schema=json.dumps(schema_document(schema), separators=(",", ":")),
                schema_id=schema.schema_id,
                spec_id=spec_id,
                spec_fields=json.dumps(json.loads(spec.to_json())["fields"], separators=(",", ":")),
            )
            known = _SpecForm(ManifestCodec(form), spec, partition_types(spec, schema))
            self._forms[spec_id] = known
        return known

    def _schema_for(self, spec: PartitionSpec) -> TableSchema:
        wanted = {field.source_id for field in spec.fields}
        for number in sorted(self._schemas, reverse=True):
            schema = self._schemas[number]
            if wanted <= {column.field_id for column in schema.columns}:
                return schema
        raise Corruption(f"no schema has the columns of partition spec {spec.spec_id}")


def delete_key(location: str, offset: int | None) -> str:
    """Return the key of deletes: where they are."""
    return location if offset is None else f"{location}#{offset}"


def _summary(values: list[PlainValue | None], arrow_type: pa.DataType) -> FieldSummary:
    lowest: PlainValue | None = None
    highest: PlainValue | None = None
    has_nan = False
    for value in values:  # one for each file of a manifest, which are bounded
        if value is None:
            continue
        if is_nan(value):
            has_nan = True
            continue
        if lowest is None or less(value, lowest):
            lowest = value
        if highest is None or less(highest, value):
            highest = value
    return FieldSummary(
        contains_null=None in values,
        contains_nan=has_nan,
        lower_bound=None if lowest is None else encode_single_value(arrow_type, lowest),
        upper_bound=None if highest is None else encode_single_value(arrow_type, highest),
    )
