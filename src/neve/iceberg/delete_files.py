"""The files that hold the deletes of data files, in each format of Iceberg.

    format 3    the Puffin file of the vector, as the table has it
    format 2    a Parquet file of positions for each vector, written when it is first published

Format 2:    deletes/<id>.puffin at byte 4  ──►  deletes/<id>-4.parquet

    file_path   string, required, field id 2147483546     the data file, the same in every row
    pos         long, required, field id 2147483545       ascending

Its content follows from the vector and the location of the data file, its name from the place of
the vector. So any process may write it again, and it is garbage when the Puffin file is gone.

ICEBERG-11  Deletes name their data files as manifests do, or readers such as PyIceberg would not
            find the rows. A lake that was moved has Puffin files with its old locations: their
            footers are written again, and the vectors stay where they are in the file.
ICEBERG-12  An existing file of positions is used only when its content is right, and is written
            again when it is not.
"""

import io
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption, NotFound
from neve.iceberg.iceberg_file import PATH_FIELD_ID, POSITION_FIELD_ID, Locate
from neve.model.arrow_types import ArrowField, field_metadata
from neve.model.data_file import DataFile, VectorRef
from neve.model.version_summary import vector_bytes
from neve.sstable.deletion_vector import positions_in, read_vector
from neve.sstable.parquet_groups import read_parquet
from neve.sstable.puffin import PuffinFooter, encode_footer, read_puffin_footer
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths, join_path, position_delete_path

_SIZES_KEPT: Final = 100_000
_REFERENCED: Final = "referenced-data-file"


def _required(name: str, arrow_type: pa.DataType, field_id: int) -> ArrowField:
    metadata = field_metadata(field_id=field_id, doc=None)
    return pa.field(name, arrow_type, nullable=False, metadata=metadata)


_SCHEMA: Final = pa.schema(
    [
        _required("file_path", pa.string(), PATH_FIELD_ID),
        _required("pos", pa.int64(), POSITION_FIELD_ID),
    ]
)


class DeleteFiles(ABC):
    """Where the deletes of data files are."""

    def __init__(self, objects: ObjectStore, paths: TablePaths, locate: Locate) -> None:
        self._objects = objects
        self._paths = paths
        self._locate = locate
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def file_bytes(self, file: DataFile) -> int:
        """Size of the file, after making it what readers need; raises NotFound."""
        path = self.path(file)
        size = self._sizes.get(path)
        if size is None:
            size = self._made(file, join_path(self._paths.root, path))
            self._note(path, size)
        return size

    def learn(self, file: DataFile, file_bytes: int) -> None:
        """Note a size that a manifest has."""
        self._note(self.path(file), file_bytes)

    def _note(self, path: str, size: int) -> None:
        self._sizes[path] = size
        while len(self._sizes) > _SIZES_KEPT:
            self._sizes.popitem(last=False)

    @abstractmethod
    def path(self, file: DataFile) -> str:
        """Return the file with the deletes of a data file."""

    @abstractmethod
    def counted_bytes(self, file: DataFile) -> int:
        """Bytes that the deletes of a data file count."""

    @abstractmethod
    def are_whole(self, files: Iterable[DataFile]) -> bool:
        """Return whether the files made for publishing exist, with the sizes they had."""

    @abstractmethod
    def _made(self, file: DataFile, stored: str) -> int:
        """Make the file what readers need, unless it is; return its size."""


class VectorFiles(DeleteFiles):
    """Deletes as format 3 has them: the table's own vectors."""

    def path(self, file: DataFile) -> str:
        """Return the Puffin file of the vector."""
        return _vector_of(file).path

    def counted_bytes(self, file: DataFile) -> int:
        """Bytes of the vector alone: many share one Puffin file."""
        return vector_bytes(file)

    def are_whole(self, files: Iterable[DataFile]) -> bool:  # noqa: ARG002 - the protocol's
        """Nothing was made: vectors are the table's own."""
        return True

    def _made(self, file: DataFile, stored: str) -> int:
        """Make the Puffin file name its data files (ICEBERG-11)."""
        size = self._objects.size(stored)
        footer = read_puffin_footer(
            lambda start, length: self._objects.get_range(stored, start=start, length=length),
            size,
            path=stored,
        )
        offset, wanted = _vector_of(file).offset, self._locate(file.path)
        named = next((each for each in footer.blobs if each.offset == offset), None)
        found = None if named is None else named.referenced_data_file
        if found == wanted:
            return size
        if found is None or not found.endswith(f"/{file.path}"):
            raise Corruption(
                f"the Puffin file has a vector of {found!a} where that of {wanted!a} should be",
                path=stored,
                offset=offset,
            )
        payload = _moved(
            self._objects.get(stored).payload,
            footer,
            before=found.removesuffix(file.path),
            after=wanted.removesuffix(file.path),
        )
        self._objects.put(stored, payload)
        return len(payload)


class PositionFiles(DeleteFiles):
    """Deletes as format 2 has them: a Parquet file of positions for each vector."""

    def path(self, file: DataFile) -> str:
        """Return the file of positions that follows from the vector."""
        vector = _vector_of(file)
        return position_delete_path(vector.path, vector.offset)

    def counted_bytes(self, file: DataFile) -> int:
        """Bytes of the whole file, which has the deletes of one data file."""
        return self.file_bytes(file)

    def are_whole(self, files: Iterable[DataFile]) -> bool:
        """Return whether the files of positions exist, with the sizes they had."""
        root = f"{self._paths.root}/"
        found = {
            info.path.removeprefix(root): info.size
            for info in self._objects.list(f"{self._paths.deletes}/")
        }
        paths = [self.path(file) for file in files if file.vector is not None]
        return all(
            path in found and self._sizes.get(path, found[path]) == found[path] for path in paths
        )

    def _made(self, file: DataFile, stored: str) -> int:
        """Write the file when it is not there (ICEBERG-12)."""
        rows = self._rows(file)
        try:
            found = self._objects.get(stored).payload
        except NotFound:
            found = b""
        if _holds(found, rows):
            return len(found)
        stream = io.BytesIO()
        pq.write_table(rows, stream, compression="zstd", write_page_checksum=True)
        self._objects.put(stored, stream.getvalue())
        return len(stream.getvalue())

    def _rows(self, file: DataFile) -> pa.Table:
        vector = read_vector(self._objects, self._paths, _vector_of(file), row_count=file.row_count)
        positions = positions_in(vector)
        location = pa.array([self._locate(file.path)])
        same = pa.DictionaryArray.from_arrays(np.zeros(len(positions), dtype=np.int32), location)
        return pa.table([same.cast(pa.string()), pa.array(positions)], schema=_SCHEMA)


def _holds(payload: bytes, rows: pa.Table) -> bool:
    """Whether a Parquet file is whole and holds these rows."""
    try:
        return bool(read_parquet(payload).equals(rows))
    except (pa.ArrowException, OSError):
        return False


def _moved(payload: bytes, footer: PuffinFooter, *, before: str, after: str) -> bytes:
    """Return a Puffin file whose vectors name data files under another location."""
    blobs = []
    for blob in footer.blobs:
        named = blob.referenced_data_file
        if named is not None and named.startswith(before):
            words = {**blob.properties, _REFERENCED: f"{after}{named.removeprefix(before)}"}
            blobs.append(replace(blob, properties=words))
        else:
            blobs.append(blob)
    end = max(blob.offset + blob.length for blob in blobs)
    return payload[:end] + encode_footer(replace(footer, blobs=tuple(blobs)))


def _vector_of(file: DataFile) -> VectorRef:
    if file.vector is None:
        raise Corruption("a file without deletes has no file of them", path=file.path)
    return file.vector
