"""Verification: reads everything a table consists of, and reports problems and gaps.

1. every file of the current Version: size, checksums, order of keys, counts, bounds, its index
2. every vector: its checksum, its cardinality, positions inside the file, its Puffin footer
3. one live row per key, over all files
4. every file of the other retained Versions is there, with its size, and every vector can be read
5. logs, compared with their mark; leases, announced work, and files that nothing reaches
6. further checks that a caller passes: the metadata published for other engines

Nothing is changed. The first three take as long as reading the table; they check single files and
can run anywhere. Cost grows with the number of files and rows: the keys of overlapping files are
compared once, all together instead of pair by pair, a few million at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.compaction.rewrite_job import even_ranges, has_live_keys
from neve.engine.recovery import read_mark, read_needed_logs
from neve.engine.upkeep import Upkeep
from neve.errors import Corruption, NeveError, NotFound, Phrase, Unavailable, Wording
from neve.keys.arrays import concat_keys
from neve.keys.columns import KeyArray
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile, VectorRef
from neve.model.display import counted, shown_bytes
from neve.model.version import Version
from neve.observability.events import Progress
from neve.sstable.deletion_vector import read_vector
from neve.sstable.index_file import has_index
from neve.sstable.puffin import read_puffin_footer
from neve.sstable.remembered_deletes import read_deletes
from neve.storage.table_paths import join_path
from neve.table.table_context import TableParts
from neve.table.table_files import TableFiles

_KEYS_AT_ONCE: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What some checks read, what they could not read, and the problems."""

    checked: Mapping[str, int] = field(default_factory=dict)
    """How many of each kind of thing were read."""
    unseen: tuple[str, ...] = ()
    """Things that were not read, and why."""
    problems: tuple[NeveError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was read, what was not, and what was found."""

    version: int
    file_count: int
    row_count: int
    """Live rows of the current Version."""
    byte_count: int
    vector_count: int
    version_count: int
    """Retained Versions whose files were looked for."""
    checked: Mapping[str, int] = field(default_factory=dict)
    """How many of each further kind of thing were read: index files, logs, leases, manifests, …"""
    unseen: tuple[str, ...] = ()
    """Things that were not read, and why."""
    problems: tuple[NeveError, ...] = field(default=())

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def checked_words(self) -> str:
        """What was read besides the files of the current Version, in one line."""
        return ", ".join(
            counted(count, what.removesuffix("s")) for what, count in self.checked.items() if count
        )

    def joined(self, more: Findings) -> "VerifyReport":
        """Return the report with further findings."""
        return replace(
            self,
            checked={**self.checked, **more.checked},
            unseen=(*self.unseen, *more.unseen),
            problems=(*self.problems, *more.problems),
        )

    def __str__(self) -> str:
        words = (
            f"version {self.version}: {counted(self.file_count, 'file')}, "
            f"{counted(self.row_count, 'row')}, {counted(self.byte_count, 'byte')}, "
            f"{counted(self.vector_count, 'vector')}; {counted(self.version_count, 'version')}"
        )
        lines = [words]
        if self.checked_words:
            lines.append(f"also read: {self.checked_words}")
        lines += [f"not seen: {what}" for what in self.unseen]
        return "\n".join([*lines, *(f"- {problem}" for problem in self.problems)])

    def __repr__(self) -> str:
        state = "sound" if self.is_sound else counted(len(self.problems), "problem")
        return f"<VerifyReport {state}\n{self}\n>"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTable:
    """A Version that is pinned while it is checked, and the readers of its files."""

    files: TableFiles
    version: Version

    @property
    def parts(self) -> TableParts:
        """The parts of the table."""
        return self.files.parts


FurtherCheck: TypeAlias = Callable[[VerifiedTable], Findings]
"""A check of a layer above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """One file to read whole, or several whose keys are compared."""

    file: DataFile
    others: tuple[DataFile, ...] = ()
    """Files that share the rule of one live row per key with this one; none: read the file."""
    key_range: KeyRange = field(default_factory=KeyRange)
    """Keys to compare."""


RunChecks: TypeAlias = Callable[
    [Sequence[FileCheck], Callable[[FileCheck], None]], Sequence[NeveError]
]
"""Runs checks in any order, reports each when it is done, and returns the problems."""


def run_check(files: TableFiles, check: FileCheck) -> list[NeveError]:
    """Run one check; returns the problems."""
    parts = files.parts
    if check.others:
        return _second_rows(files, (check.file, *check.others), check.key_range)
    file = check.file
    try:
        reader = files.reader(file)
        reader.verify()
        if file.vector is not None:
            _verify_vector(parts, file, file.vector)
    except (Corruption, NotFound) as problem:
        return [problem]
    index_problem = files.index_problem(file)
    return (
        []
        if index_problem is None
        else [_useless_index(index_problem, parts.paths.index_of(file.path))]
    )


def run_checks_here(
    table: VerifiedTable,
    checks: Sequence[FileCheck],
    tell: Callable[[FileCheck], None],
) -> list[NeveError]:
    """Run checks one after another."""
    problems: list[NeveError] = []
    for check in checks:
        problems += run_check(table.files, check)
        tell(check)
    return problems


def verify_table(
    table: VerifiedTable,
    progress: Progress,
    *,
    run_checks: RunChecks | None = None,
    further: Sequence[FurtherCheck] = (),
) -> VerifyReport:
    """Read a whole Version, and everything else the table has.

    `run_checks` runs the checks of single files elsewhere; `further` are checks of layers above.
    """
    run = run_checks or partial(run_checks_here, table)
    version = table.version
    total = sum(file.file_bytes for file in version.files.values())
    done = 0

    def report_done(check: FileCheck) -> None:
        nonlocal done
        done += check.file.file_bytes
        progress(done, total)

    found = run([FileCheck(file=file) for file in version.files.values()], report_done)
    index_paths = frozenset(table.parts.paths.index_of(path) for path in version.files)
    missing = [each for each in found if _is_missing_index(each, index_paths)]
    problems = [each for each in found if not _is_missing_index(each, index_paths)]
    if not problems:
        problems += run(list(_overlaps(table)), lambda _check: None)
    retained, older = _check_retained(table.parts, version)
    report = VerifyReport(
        version=version.number,
        file_count=len(version.files),
        row_count=version.row_count,
        byte_count=total,
        vector_count=sum(file.vector is not None for file in version.files.values()),
        version_count=retained,
        checked={"index files": sum(map(has_index, version.files.values())) - len(missing)},
        problems=tuple(problems),
    ).joined(older)
    report = report.joined(_check_deletes(table))
    if missing:
        words = f"{counted(len(missing), 'index file')}: missing, which costs time but no rows"
        report = report.joined(Findings(unseen=(words,)))
    for check in (check_logs, check_readers_and_jobs, check_leftovers, *further):
        report = report.joined(check(table))
    return report


def _check_deletes(table: VerifiedTable) -> Findings:
    """Read the files of remembered deletes."""
    problems: list[NeveError] = []
    for file in table.version.deletes.values():
        try:
            read_deletes(file, store=table.parts.objects, paths=table.parts.paths)
        except (Corruption, NotFound) as problem:
            problems.append(problem)
    checked = {"files of remembered deletes": len(table.version.deletes)}
    return Findings(checked=checked if table.version.deletes else {}, problems=tuple(problems))


def _check_retained(parts: TableParts, version: Version) -> tuple[int, Findings]:
    """Look for the files of the other retained Versions; returns how many Versions there are."""
    retained = 0
    problems: list[NeveError] = []
    sizes: dict[str, NeveError | None] = {}
    known = {file.vector for file in version.files.values()}
    for each in parts.versions.each_version_in(parts.versions.store.read()):
        retained += 1
        for file in (*each.files.values(), *each.deletes.values()):
            is_known = file.path in version.files or file.path in version.deletes
            if not is_known and file.path not in sizes:
                sizes[file.path] = _missing(parts, file)
            if file.vector is not None and file.vector not in known:
                known.add(file.vector)
                try:
                    _verify_vector(parts, file, file.vector)
                except (Corruption, NotFound) as problem:
                    problems.append(problem)
    problems.extend(problem for problem in sizes.values() if problem is not None)
    unseen: tuple[str, ...] = ()
    if sizes:
        files = counted(len(sizes), "file")
        unseen = (f"rows and indexes of {files} of older versions: sizes of data files only",)
    return retained, Findings(
        checked={"older files": len(sizes)}, unseen=unseen, problems=tuple(problems)
    )


def check_logs(table: VerifiedTable) -> Findings:
    """Read every log with rows that are not in files yet."""
    parts = table.parts
    try:
        report = read_needed_logs(parts)
        is_marked = read_mark(parts, UUID(parts.versions.head().table_uuid)) is not None
    except (NotFound, Corruption) as problem:
        return Findings(problems=(problem,))
    except Unavailable as error:
        return Findings(unseen=(f"logs: {error}",))
    unseen = tuple(
        f"{shown_bytes(each.dropped_bytes)} at the end of {each.path}: never acknowledged"
        for each in report.problems
    )
    if not is_marked and report.log_count:
        unseen += (f"whether logs were cut or deleted: there is no {parts.paths.log_mark}",)
    return Findings(
        checked={"logs": report.log_count, "logged rows": report.row_count}, unseen=unseen
    )


def check_readers_and_jobs(table: VerifiedTable) -> Findings:
    """Read the leases of readers and the intents of jobs."""
    parts = table.parts
    leases = list(parts.leases.read_all())
    problems: list[NeveError] = [each for each in leases if isinstance(each, Corruption)]
    intents = 0
    try:
        intents = sum(1 for _ in parts.writer_state.intents_in(parts.versions.store.read()))
    except Corruption as error:
        problems.append(error)
    return Findings(checked={"leases": len(leases), "intents": intents}, problems=tuple(problems))


def check_leftovers(table: VerifiedTable) -> Findings:
    """Count files that no Version and no announced work reaches; they are not an error."""
    upkeep = Upkeep(table.parts)
    found, foreign = upkeep.leftovers(), upkeep.foreign_files()
    unseen: tuple[str, ...] = ()
    if foreign:
        files = counted(len(foreign), "file")
        unseen = (f"{files} that neve did not name, such as {min(foreign)}",)
    return Findings(
        checked={"leftover files": found.file_count, "leftover bytes": found.byte_count},
        unseen=unseen,
    )


def refuse_problems(report: VerifyReport) -> VerifyReport:
    """Return a report without problems; otherwise raise Corruption with the report attached."""
    if report.is_sound:
        return report
    worst = report.problems[0]
    error = Corruption(
        f"{counted(len(report.problems), 'thing')} wrong with the table; first: {worst.message}",
        problems=report.problems,
        path=worst.path,
        offset=worst.offset,
        hint=worst.hint or "Restore the file from a copy, or roll back to a version without it",
    )
    error.add_note(str(report))
    raise error from worst


def _verify_vector(parts: TableParts, file: DataFile, ref: VectorRef) -> None:
    """Read a vector from storage, not from the cache, and the footer for other engines."""
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


def _overlaps(table: VerifiedTable) -> Iterator[FileCheck]:
    """Yield checks that compare the keys of overlapping files, in ranges that fit into memory."""
    for group in _overlapping(table.version):
        count = -(-sum(file.live_count for file in group) // _KEYS_AT_ONCE)
        for key_range in even_ranges(group, table.files.keys_of, count=count):
            held = [file for file in group if has_live_keys(file, key_range)]
            if len(held) > 1:
                yield FileCheck(file=held[0], others=tuple(held[1:]), key_range=key_range)


def _overlapping(version: Version) -> Iterator[list[DataFile]]:
    """Return the groups of files whose keys overlap, directly or through others."""
    group: list[DataFile] = []
    highest = b""
    for file in sorted(version.files.values(), key=lambda file: file.key_min):
        if group and file.key_min > highest:
            yield group
            group = []
        highest = max(highest, file.key_max) if group else file.key_max
        group.append(file)
    yield group


def _second_rows(
    files: TableFiles, group: Sequence[DataFile], key_range: KeyRange
) -> list[NeveError]:
    """Find keys of a range that have more than one live row in a group of files, in one pass."""
    pieces = [_live_keys(files, file, key_range) for file in group]
    keys = concat_keys(pieces)
    if len(pc.unique(keys)) == len(keys):
        return []
    counts = pc.value_counts(keys)
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), pa.scalar(1)))
    holders = [
        file.path
        for file, piece in zip(group, pieces, strict=True)
        if pc.any(pc.is_in(piece, value_set=twice.cast(piece.type))).as_py()
    ]
    return [
        Corruption(
            f"MANIFEST-V10: {len(twice):,} keys have a live row here and in "
            f"{', '.join(holders[1:4])}",
            path=holders[0],
        )
    ]


def _live_keys(files: TableFiles, file: DataFile, key_range: KeyRange) -> KeyArray:
    reader, mask = files.reader(file), files.keep_mask(file)
    start, stop = 0, file.row_count
    if key_range.start is not None:
        start = reader.key_bound(key_range.start, side="left")
    if key_range.end is not None:
        stop = reader.key_bound(key_range.end, side="left")
    live = np.arange(start, stop)
    return reader.keys_at(live if mask is None else live[mask[start:stop]])


def _useless_index(problem: NeveError, path: str) -> NeveError:
    """Return the error of a damaged index file; a missing one stays NotFound."""
    if isinstance(problem, NotFound):
        return problem
    return Corruption(
        f"the index file is damaged: {problem.message}",
        path=path,
        hint=Wording(Phrase.REBUILD_INDEXES),
    )


def _is_missing_index(problem: NeveError, paths: frozenset[str]) -> bool:
    return isinstance(problem, NotFound) and problem.path in paths


def _missing(parts: TableParts, file: DataFile) -> NeveError | None:
    path = join_path(parts.paths.root, file.path)
    try:
        size = parts.objects.size(path)
    except NotFound as missing:
        return missing
    if size != file.file_bytes:
        return Corruption(f"the file has {size:,} bytes, not {file.file_bytes:,}", path=path)
    return None
