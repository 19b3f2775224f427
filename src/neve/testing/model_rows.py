"""ModelRows: data files as lists of rows and vectors as bitmaps, all in memory.

It is the RowLookup and the writer of vectors that a committer needs, without Parquet and Puffin: a
test builds files from plain rows, commits them, and reads the rows of a Version.

    rows = ModelRows()
    file = rows.add_file("data/1.parquet", {b"k": b"v"})
    committer.commit_proposal(proposal, change, lookup=rows)
    assert rows.live_rows(version) == [(b"k", b"v")]
"""

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import count
from typing import cast

import pyarrow as pa
from pyroaring import BitMap64

from neve.manifest.rebase import Keys, RowLookup, WriteVectors
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Version


class ModelRows:
    """Rows of every file ever added, and every vector ever written; safe for many threads."""

    def __init__(self) -> None:
        # safe on their own: entries are only added, each under a unique name
        self._numbers = count()
        self._files: dict[str, tuple[tuple[bytes, bytes], ...]] = {}
        self._positions: dict[str, dict[bytes, int]] = {}
        self._vectors: dict[VectorRef, BitMap64] = {}

    def add_file(self, path: str, rows: Mapping[bytes, bytes], *, level: int = 0) -> DataFile:
        """Store the rows of a new file, sorted by key; return its facts."""
        assert rows, "a data file has rows"
        assert path not in self._files, "names of files are never used twice"
        ordered = tuple(sorted(rows.items()))
        self._files[path] = ordered
        self._positions[path] = {key: position for position, (key, _) in enumerate(ordered)}
        return DataFile(
            path=path,
            file_bytes=sum(len(key) + len(value) for key, value in ordered) or 1,
            row_count=len(ordered),
            level=level,
            key_min=ordered[0][0],
            key_max=ordered[-1][0],
        )

    def writing(self, write_vectors: WriteVectors) -> RowLookup:
        """Return the same rows with another writer of vectors."""
        other = copy(self)
        other.write_vectors = write_vectors  # type: ignore[method-assign, assignment]
        return other

    def write_vectors(self, whole: Mapping[str, BitMap64]) -> dict[str, VectorRef]:
        """Store whole vectors by data file path, like one Puffin file; return where each is."""
        path = f"deletes/{next(self._numbers):010}.puffin"
        refs: dict[str, VectorRef] = {}
        for offset, (data_path, positions) in enumerate(whole.items()):
            ref = VectorRef(path=path, offset=offset, length=1, cardinality=len(positions))
            self._vectors[ref] = BitMap64(positions)
            refs[data_path] = ref
        return refs

    def positions_of(self, file: DataFile, keys: Keys) -> BitMap64:
        """Return the positions of these keys in a file, including marked ones."""
        positions = self._positions[file.path]
        wanted = cast("list[bytes]", keys.to_pylist())
        return BitMap64(positions[key] for key in wanted if key in positions)

    def keys_at(self, file: DataFile, positions: BitMap64) -> Keys:
        """Return the keys at these positions."""
        rows = self._files[file.path]
        return keys_of(rows[position][0] for position in positions)

    def vector(self, file: DataFile) -> BitMap64:
        """Return the positions that the file's vector marks; empty without one."""
        return BitMap64() if file.vector is None else BitMap64(self._vectors[file.vector])

    def older_rows(
        self, own: DataFile, other: DataFile, schema_id: int
    ) -> tuple[BitMap64, BitMap64]:
        """Compare the live rows of both that have one key: the greater value is newer."""
        del schema_id
        mine, theirs = self._files[own.path], self._files[other.path]
        marked = self.vector(other)
        common = [
            (position, self._positions[other.path][key])
            for position, (key, _) in enumerate(mine)
            if self._positions[other.path].get(key, -1) not in {-1, *marked}
        ]
        return (
            BitMap64(one for one, two in common if mine[one][1] < theirs[two][1]),
            BitMap64(two for one, two in common if mine[one][1] >= theirs[two][1]),
        )

    def live_positions(self, file: DataFile, keys: Keys) -> BitMap64:
        """Return the positions of these keys that readers see."""
        return self.positions_of(file, keys) - self.vector(file)

    def live_rows_of(self, file: DataFile) -> dict[bytes, bytes]:
        """Return the rows of one file that readers see, by key."""
        marked = self.vector(file)
        return dict(
            row for position, row in enumerate(self._files[file.path]) if position not in marked
        )

    def live_rows(self, version: Version) -> list[tuple[bytes, bytes]]:
        """Return every row that readers of a Version see, by key, including duplicates."""
        return sorted(
            row for file in version.files.values() for row in self.live_rows_of(file).items()
        )


def keys_of(keys: Iterable[bytes]) -> pa.BinaryArray:
    """Return encoded keys as the array for a RowLookup."""
    return pa.array(list(keys), type=pa.binary())
