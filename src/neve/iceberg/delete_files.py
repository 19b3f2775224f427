"""The files that hold the deletes of data files, as each format of Iceberg wants them.

    format 3    the Puffin file of the vector, as the table has it
    format 2    a Parquet file of positions for each vector, written when it is first published

Format 2:    deletes/<id>.puffin at byte 4  ──►  deletes/<id>-4.parquet

    file_path   string, required, field id 2147483546     the data file, the same in every row
    pos         long, required, field id 2147483545       ascending

Such a file follows from its vector alone, byte for byte, and is named by where that lies. So it may
be written again by anyone, and has outlived its use when the Puffin file is gone.
"""

import io
from collections import OrderedDict
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption, NotFound
from neve.iceberg.iceberg_file import PATH_FIELD_ID, POSITION_FIELD_ID, Locate
from neve.model.arrow_types import ArrowField, field_metadata
from neve.model.data_file import DataFile, VectorRef
from neve.sstable.deletion_vector import positions_in, read_vector
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths, join_path, position_delete_path

_SIZES_KEPT: Final = 100_000


def _required(name: str, arrow_type: pa.DataType, field_id: int) -> ArrowField:
    metadata = field_metadata(field_id=field_id, doc=None)
    return pa.field(name, arrow_type, nullable=False, metadata=metadata)


_SCHEMA: Final = pa.schema(
    [
        _required("file_path", pa.string(), PATH_FIELD_ID),
        _required("pos", pa.int64(), POSITION_FIELD_ID),
    ]
)


class DeleteFiles(Protocol):
    """Where the deletes of data files are."""

    def path(self, file: DataFile) -> str:
        """Path of the file with a data file's deletes, in the table."""
        ...

    def file_bytes(self, file: DataFile) -> int:
        """Size of that file."""
        ...


class VectorFiles:
    """Deletes as format 3 has them: the table's own vectors."""

    def __init__(self, objects: ObjectStore, paths: TablePaths) -> None:
        self._objects = objects
        self._paths = paths
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def path(self, file: DataFile) -> str:
        """Give the Puffin file of the vector."""
        return _vector_of(file).path

    def file_bytes(self, file: DataFile) -> int:
        """Size of the Puffin file; raises NotFound."""
        path = self.path(file)
        size = self._sizes.get(path)
        if size is None:
            size = self._sizes[path] = self._objects.size(join_path(self._paths.root, path))
            while len(self._sizes) > _SIZES_KEPT:
                self._sizes.popitem(last=False)
        return size


class PositionFiles:
    """Deletes as format 2 has them: a Parquet file of positions for each vector."""

    def __init__(self, objects: ObjectStore, paths: TablePaths, locate: Locate) -> None:
        self._objects = objects
        self._paths = paths
        self._locate = locate
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def path(self, file: DataFile) -> str:
        """Give the file of positions that follows from the vector."""
        vector = _vector_of(file)
        return position_delete_path(vector.path, vector.offset)

    def file_bytes(self, file: DataFile) -> int:
        """Size of the file, which is written when it is not there; raises NotFound."""
        path = self.path(file)
        size = self._sizes.get(path)
        if size is None:
            size = self._sizes[path] = self._found_or_written(file, path)
            while len(self._sizes) > _SIZES_KEPT:
                self._sizes.popitem(last=False)
        return size

    def _found_or_written(self, file: DataFile, path: str) -> int:
        stored = join_path(self._paths.root, path)
        try:
            return self._objects.size(stored)
        except NotFound:
            payload = self._encoded(file)
            self._objects.put(stored, payload)
            return len(payload)

    def _encoded(self, file: DataFile) -> bytes:
        vector = read_vector(self._objects, self._paths, _vector_of(file), row_count=file.row_count)
        positions = positions_in(vector)
        location = pa.array([self._locate(file.path)])
        same = pa.DictionaryArray.from_arrays(np.zeros(len(positions), dtype=np.int32), location)
        rows = pa.table([same.cast(pa.string()), pa.array(positions)], schema=_SCHEMA)
        stream = io.BytesIO()
        pq.write_table(rows, stream, compression="zstd", write_page_checksum=True)
        return stream.getvalue()


def _vector_of(file: DataFile) -> VectorRef:
    if file.vector is None:
        raise Corruption("a file without deletes has no file of them", path=file.path)
    return file.vector
