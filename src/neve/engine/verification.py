"""Verification: reads everything a table consists of, and says what is wrong with it.

1. every file of the current Version: size, checksums, order of keys, counts, bounds
2. every vector: its checksum, its cardinality, positions inside of the file, its Puffin footer
3. one live row per key, over all files
4. every file of the other retained Versions is there, with its size, and every vector can be read
5. the logs that are needed, held against their mark

Nothing is changed. The first three take as long as reading the table; they are checks of single
files, which can be run anywhere.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from neve.engine.open_files import OpenFiles
from neve.engine.recovery import verify_logs
from neve.engine.table_parts import TableParts
from neve.errors import Corruption, NeveError, NotFound
from neve.model.data_file import DataFile, VectorRef
from neve.model.shown_value import counted
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
            f"version {self.version}: {counted(self.file_count, 'file')}, "
            f"{counted(self.row_count, 'row')}, {counted(self.byte_count, 'byte')}, "
            f"{counted(self.vector_count, 'vector')}; {counted(self.version_count, 'version')}"
        )
        return "\n".join([words, *(f"- {problem}" for problem in self.problems)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """One file to read whole or, with others, to compare with them."""

    file: DataFile
    others: tuple[DataFile, ...] = ()
    """Files in which no key of this one may have a second live row; none: the file is read."""


RunChecks: TypeAlias = Callable[
    [Sequence[FileCheck], Callable[[FileCheck], None]], Sequence[NeveError]
]
"""Runs checks, in any order, tells of each that is done, and gives what is wrong."""


def run_check(parts: TableParts, files: OpenFiles, check: FileCheck) -> list[NeveError]:
    """Run one check; gives what is wrong."""
    if check.others:
        return _second_rows(files, check)
    file = check.file
    try:
        files.reader(file).verify()
        if file.vector is not None:
            _verify_vector(parts, file, file.vector)
    except (Corruption, NotFound) as problem:
        return [problem]
    return []


def run_checks_here(
    parts: TableParts,
    files: OpenFiles,
    checks: Sequence[FileCheck],
    tell: Callable[[FileCheck], None],
) -> list[NeveError]:
    """Run checks one after another."""
    problems: list[NeveError] = []
    for check in checks:
        problems += run_check(parts, files, check)
        tell(check)
    return problems


def verify_table(
    parts: TableParts,
    files: OpenFiles,
    version: Version,
    progress: ProgressOf,
    *,
    run_checks: RunChecks | None = None,
) -> VerifyReport:
    """Read a Version whole, and look for the files of the other retained ones.

    `run_checks` runs the checks of single files elsewhere.
    """
    run = run_checks or partial(run_checks_here, parts, files)
    total = sum(file.file_bytes for file in version.files.values())
    done = 0

    def tell(check: FileCheck) -> None:
        nonlocal done
        done += check.file.file_bytes
        progress(done, total)

    problems = [*run([FileCheck(file=file) for file in version.files.values()], tell)]
    if not problems:
        problems += run(list(_overlaps(version)), lambda _check: None)
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
    problems.extend(verify_logs(parts))
    return VerifyReport(
        version=version.number,
        file_count=len(version.files),
        row_count=version.row_count,
        byte_count=total,
        vector_count=sum(file.vector is not None for file in version.files.values()),
        version_count=retained,
        problems=tuple(problems),
    )


def refuse_problems(report: VerifyReport) -> VerifyReport:
    """Give a report without problems back; raises Corruption, the report attached, with some."""
    if report.is_sound:
        return report
    worst = report.problems[0]
    error = Corruption(
        f"{counted(len(report.problems), 'thing')} wrong with the table; first: {worst.message}",
        path=worst.path,
        offset=worst.offset,
        hint="Restore the file from a copy, or roll back to a version without it",
    )
    error.add_note(str(report))
    raise error from worst


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


def _overlaps(version: Version) -> Iterator[FileCheck]:
    """Give the files whose keys overlap with those of others, each pair once."""
    listed = sorted(version.files.values(), key=lambda file: file.key_min)
    first_keys = [file.key_min for file in listed]
    for place, file in enumerate(listed):
        # Those behind it that begin before it ends.
        others = tuple(listed[place + 1 : bisect_right(first_keys, file.key_max)])
        if others:
            yield FileCheck(file=file, others=others)


def _second_rows(files: OpenFiles, check: FileCheck) -> list[NeveError]:
    """Find keys that have a live row in two files."""
    problems: list[NeveError] = []
    mask = files.keep_mask(check.file)
    live = np.arange(check.file.row_count) if mask is None else np.flatnonzero(mask)
    keys = files.reader(check.file).keys_at(live)
    for other in check.others:
        twice = files.positions_of(other, keys) - files.vector(other)
        if twice:
            problems.append(
                Corruption(
                    f"V10: {len(twice):,} keys have a live row here and in {check.file.path}",
                    path=other.path,
                )
            )
    return problems


def _missing(parts: TableParts, file: DataFile) -> NeveError | None:
    path = join_path(parts.paths.root, file.path)
    try:
        size = parts.objects.size(path)
    except NotFound as missing:
        return missing
    if size != file.file_bytes:
        return Corruption(f"the file has {size:,} bytes, not {file.file_bytes:,}", path=path)
    return None
