"""Small Versions and files for tests of compaction."""

from collections.abc import Iterable

from neve.model.data_file import DataFile, PartitionValue, VectorRef
from neve.model.version import Operation, Version, VersionFacts

MIB = 1 << 20


def data_file(
    name: str,
    *,
    keys: tuple[bytes, bytes] = (b"a", b"z"),
    level: int = 0,
    file_bytes: int = 10 * MIB,
    rows: int = 100,
    marked: int = 0,
    partition: int | bytes | None = None,
    spec_id: int = 0,
) -> DataFile:
    stored = bytes([partition]) if isinstance(partition, int) else partition
    value = () if stored is None else (PartitionValue(field_id=1000, value=stored),)
    return DataFile(
        path=f"data/{name}.parquet",
        file_bytes=file_bytes,
        row_count=rows,
        level=level,
        key_min=keys[0],
        key_max=keys[1],
        vector=vector_of(name, marked) if marked else None,
        partition=value,
        spec_id=spec_id,
    )


def vector_of(name: str, marked: int) -> VectorRef:
    return VectorRef(path=f"deletes/{name}.puffin", offset=4, length=40, cardinality=marked)


def version_of(files: Iterable[DataFile], *, number: int = 7) -> Version:
    facts = VersionFacts(operation=Operation.APPEND, timestamp_ms=0, schema_id=0, spec_id=0)
    return Version(
        number=number, parent=number - 1, facts=facts, files={file.path: file for file in files}
    )
