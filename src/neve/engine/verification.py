"""Verification: reads everything a table consists of, and says what is wrong with it.

1. every file of the current Version: size, checksums, order of keys, counts, bounds
2. every vector: its checksum, its cardinality, positions inside of the file, its Puffin footer
3. one live row per key, over all files
4. every file of the other retained Versions is there, with its size, and every vector can be read

Nothing is changed. The first three take as long as reading the table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from neve.engine.open_files import OpenFiles
from neve.engine.table_parts import TableParts
from neve.errors import Corruption, NeveError, NotFound
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Version
from neve.sstable.deletion_vector import read_vector
from neve.sstable.puffin import read_puffin_footer
from neve.storage.table_paths import join_path

ProgressOf = Callable[[int, int], None]
"""Told how many of how many bytes are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was read, and what was found."""

    version: int
    file_count: int
    row_count: int
    """Live rows of the current Version."""
    byte_count: int
    vector_count: int
    version_count: int
    """Retained Versions whose files were looked for."""
    problems: tuple[NeveError, ...] = field(default=())

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        words = (
            f"version {self.version}: {self.file_count:,} files, {self.row_count:,} rows, "
            f"{self.byte_count:,} bytes, {self.vector_count:,} vectors; "
            f"{self.version_count:,} versions"
        )
        return "\n".join([words, *(f"- {problem}" for problem in self.problems)])


def verify_table(
    parts: TableParts, files: OpenFiles, version: Version, progress: ProgressOf
) -> VerifyReport:
    """Read a Version whole, and look for the files of the other retained ones."""
    problems: list[NeveError] = []
    total = sum(file.file_bytes for file in version.files.values())
    done = 0
    for file in version.files.values():
        try:
            files.reader(file).verify()
            if file.vector is not None:
                _verify_vector(parts, file, file.vector)
        except (Corruption, NotFound) as problem:
            problems.append(problem)
        done += file.file_bytes
        progress(done, total)
    if not problems:
        problems.extend(_second_rows(files, version))
    retained = 0
    session = parts.versions.store.read()
    sizes: dict[str, NeveError | None] = {}
    known = {file.vector for file in version.files.values()}
    for each in parts.versions.each_version_in(session):
        retained += 1
        for file in each.files.values():
            if file.path not in version.files and file.path not in sizes:
                sizes[file.path] = _missing(parts, file)
            if file.vector is not None and file.vector not in known:
                known.add(file.vector)
                try:
                    _verify_vector(parts, file, file.vector)
                except (Corruption, NotFound) as problem:
                    problems.append(problem)
    problems.extend(problem for problem in sizes.values() if problem is not None)
    return VerifyReport(
        version=version.number,
        file_count=len(version.files),
        row_count=version.row_count,
        byte_count=total,
        vector_count=sum(file.vector is not None for file in version.files.values()),
        version_count=retained,
        problems=tuple(problems),
    )


def _verify_vector(parts: TableParts, file: DataFile, ref: VectorRef) -> None:
    """Read a vector as it is stored, not as it is remembered, and the footer that others read."""
    read_vector(parts.objects, parts.paths, ref, row_count=file.row_count)
    path = join_path(parts.paths.root, ref.path)
    footer = read_puffin_footer(
        lambda offset, length: parts.objects.get_range(path, start=offset, length=length),
        parts.objects.size(path),
        path=path,
    )
    if (ref.offset, ref.length) not in {(blob.offset, blob.length) for blob in footer.blobs}:
        raise Corruption(
            "the Puffin footer does not have this vector", path=path, offset=ref.offset
        )


def _second_rows(files: OpenFiles, version: Version) -> list[NeveError]:
    """Find keys that have a live row in two files."""
    problems: list[NeveError] = []
    listed = list(version.files.values())
    for place, file in enumerate(listed):
        others = [other for other in listed[place + 1 :] if _overlap(file, other)]
        if not others:
            continue
        mask = files.keep_mask(file)
        live = np.arange(file.row_count) if mask is None else np.flatnonzero(mask)
        keys = files.reader(file).keys_at(live)
        for other in others:
            twice = files.positions_of(other, keys) - files.vector(other)
            if twice:
                problems.append(
                    Corruption(
                        f"V10: {len(twice):,} keys have a live row here and in {file.path}",
                        path=other.path,
                    )
                )
    return problems


def _overlap(left: DataFile, right: DataFile) -> bool:
    return left.key_min <= right.key_max and right.key_min <= left.key_max


def _missing(parts: TableParts, file: DataFile) -> NeveError | None:
    path = join_path(parts.paths.root, file.path)
    try:
        size = parts.objects.size(path)
    except NotFound as missing:
        return missing
    if size != file.file_bytes:
        return Corruption(f"the file has {size:,} bytes, not {file.file_bytes:,}", path=path)
    return None
