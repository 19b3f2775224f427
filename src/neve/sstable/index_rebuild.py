"""Index files made again from their data files.

An index file is a cache: one that is missing or damaged costs time with every opening of its data
file, never a wrong answer. Here it is looked for, read whole, and written again where it is of no
use.
"""

from collections.abc import Callable, Iterable

from neve.errors import Corruption, NeveError, NotFound
from neve.keys.arrays import concat_keys
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.data_file import DataFile, FileFormat
from neve.model.schema import TableSchema
from neve.sstable.data_file_footer import OpenFooter
from neve.sstable.index_file import encode_index_file, open_index_file
from neve.sstable.key_index import KeyIndex
from neve.sstable.parquet_groups import ParquetGroups, one_batch
from neve.storage.object_store import ObjectStore, map_object, put_file
from neve.storage.table_paths import TablePaths


class IndexFiles:
    """The index files of one table's data files."""

    def __init__(self, store: ObjectStore, paths: TablePaths, encoder: KeyEncoder) -> None:
        self._store = store
        self._paths = paths
        self._encoder = encoder
        self._words = KeyHashes(encoder)

    def problem(self, file: DataFile, schema: TableSchema) -> NeveError | None:
        """Read the index file of a data file of this schema; says what makes it useless."""
        try:
            index = open_index_file(
                map_object(self._store, self.path_of(file)), file=file, words=self._words
            )
            _ = index.key_index
            if file.format is FileFormat.DUAL:
                if not index.has_rows or not index.schema.equals(schema.arrow_schema):
                    return Corruption(
                        "index file has not the rows of its data file", path=self.path_of(file)
                    )
                for number in range(index.group_count):
                    index.group(number)
        except (NotFound, Corruption) as problem:
            return problem
        return None

    def rebuild(self, file: DataFile, schema: TableSchema) -> int:
        """Write the index file of a data file of this schema again; gives its bytes.

        Raises NotFound and Corruption of the data file.
        """
        footer = OpenFooter.read(file, store=self._store, paths=self._paths)
        parquet = ParquetGroups(
            footer, file=file, schema=schema, store=self._store, paths=self._paths
        )
        is_dual = file.format is FileFormat.DUAL
        key_names = [column.name for column in schema.key_columns]
        names = list(schema.arrow_schema.names) if is_dual else key_names
        groups, keys = [], []
        for number in range(len(footer.group_starts) - 1):
            group = one_batch(parquet.read(range(number, number + 1), names))
            keys.append(self._encoder.encode_arrays([group.column(name) for name in key_names]))
            if is_dual:
                groups.append(group)
        pieces = encode_index_file(
            file=file,
            key_index=KeyIndex.build(concat_keys(keys), self._words),
            words=self._words,
            groups=groups,
        )
        put_file(self._store, self.path_of(file), pieces)
        return sum(map(len, pieces))

    def rebuild_useless(
        self, files: Iterable[DataFile], schema_of: Callable[[int], TableSchema]
    ) -> list[str]:
        """Write those index files again that are of no use; gives the paths of their data files."""
        rebuilt = []
        for file in files:
            schema = schema_of(file.schema_id)
            if self.problem(file, schema) is not None:
                self.rebuild(file, schema)
                rebuilt.append(file.path)
        return rebuilt

    def path_of(self, file: DataFile) -> str:
        """Path of the index file of a data file."""
        return self._paths.index_of(file.path)
