"""Partition values of data files as texts, out of the bytes in which the manifest has them.

Bytes are in Iceberg's single-value form, see `neve.model.single_value`; texts are spelled as in
`neve.model.transforms`. Bytes of another length than the type has are Corruption, but for
numbers that were widened since.
"""

from collections.abc import Mapping

from neve.errors import Corruption
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.schema import TableSchema
from neve.model.single_value import decode_single_value
from neve.model.transforms import partition_text


class PartitionWords:
    """Spells the partition values of one table's files."""

    def __init__(
        self, specs: Mapping[int, PartitionSpec], schemas: Mapping[int, TableSchema], *, path: str
    ) -> None:
        self._specs = specs
        self._path = path
        # Newest last: a field that was widened has the type it has now.
        self._types = {
            column.field_id: column.type
            for schema_id in sorted(schemas)
            for column in schemas[schema_id].columns
        }
        # Files of one partition are many, partitions few.
        self._known: dict[tuple[int, tuple[PartitionValue, ...]], dict[str, str | None]] = {}

    def of(self, file: DataFile) -> dict[str, str | None]:
        """Return the texts of a file's partition values by field name; raises Corruption."""
        key = (file.spec_id, file.partition)
        words = self._known.get(key)
        if words is None:
            words = self._known[key] = self._spell(file)
        return words

    def _spell(self, file: DataFile) -> dict[str, str | None]:
        spec = self._specs.get(file.spec_id)
        if spec is None:
            raise Corruption(
                f"{file.path!a} is of partition spec {file.spec_id}, which the table never had",
                path=self._path,
            )
        values = {each.field_id: each.value for each in file.partition}
        words: dict[str, str | None] = {}
        for field in spec.fields:
            value = values.get(field.field_id)
            try:
                words[field.name] = None if value is None else self._word(field, value)
            except (Corruption, KeyError, ValueError) as error:
                raise Corruption(
                    f"partition value {field.name!a} of {file.path!a} cannot be read",
                    path=self._path,
                ) from error
        return words

    def _word(self, field: PartitionField, value: bytes) -> str:
        result_type = field.transform.result_type(self._types[field.source_id])
        return partition_text(field.transform, result_type, decode_single_value(result_type, value))
