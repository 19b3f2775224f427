"""Rules that every published Version obeys; checked on each commit and on each load.

MANIFEST-V1   Files of one partition in a level from 1 on do not overlap in their keys.
MANIFEST-V2   A file has rows, bytes, ordered key bounds and ordered sequence bounds.
MANIFEST-V3   A vector marks at most as many rows as its file has, and never fewer than before.
MANIFEST-V4   An edit does not mark and remove the same file.
MANIFEST-V5   Data files lie under `data/`, vectors under `deletes/`.
MANIFEST-V6   Row ids of two files do not overlap, and each is below 2^63.
MANIFEST-V7   A head never goes back: version, sequences, log number, floor and epoch (MANIFEST-H1).
MANIFEST-V8   Only assigned numbers are flushed: flushed_sequence <= last_sequence, wal_floor <=
              next_log_number.
MANIFEST-V9   A commit's schema and partition spec are the head's; those of Versions and files
              exist.
MANIFEST-V10  Among the rows that no vector marks, each key occurs once. (Only reading the files
              shows this; the facts checked here cannot.)
MANIFEST-V11  A Version that names its table names the one of the head.

MANIFEST-V7 and the first half of MANIFEST-V9 compare a commit with the head before it: no load can
check them.

A broken rule is a bug of the committer, or damage: InvariantViolation names the rule, and nothing
was written.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from neve.errors import Corruption
from neve.manifest.table_head import TableHead, schema_key, spec_key
from neve.model.data_file import DataFile
from neve.model.version import Version, VersionEdit, VersionFacts

_ROW_ID_END_MAX: Final = (1 << 63) - 1


class InvariantViolation(Corruption):
    """A Version or head that must never be published."""


def check_edit(version: Version | None, edit: VersionEdit) -> None:
    """Check what an edit changes (MANIFEST-V2 to MANIFEST-V5), at a cost of the edit's size."""
    removed = set(edit.removed)
    for path, vector in edit.vectors.items():
        if path in removed:
            raise InvariantViolation(
                "MANIFEST-V4: the edit marks rows of a file it removes", path=path
            )
        file = version.files.get(path) if version is not None else None
        if file is None:
            raise InvariantViolation(
                "MANIFEST-V4: the edit marks rows of a file that is not there", path=path
            )
        if vector.cardinality > file.row_count:
            raise InvariantViolation(
                f"MANIFEST-V3: {vector.cardinality:,} of {file.row_count:,} rows are marked",
                path=path,
            )
        if vector.cardinality < file.deleted_count:
            raise InvariantViolation(
                f"MANIFEST-V3: the vector shrinks from {file.deleted_count:,} to "
                f"{vector.cardinality:,}",
                path=path,
            )
        _check_place(vector.path, "deletes/")
    for file in edit.added:
        check_file(file)
    for file in edit.deletes_added:
        _check_place(file.path, "deletes/")


def check_file(file: DataFile) -> None:
    """Check the facts of one file (MANIFEST-V2, MANIFEST-V3, MANIFEST-V5)."""
    if file.row_count < 1 or file.file_bytes < 1:
        raise InvariantViolation("MANIFEST-V2: a data file is empty", path=file.path)
    if file.key_min > file.key_max or file.sequence_min > file.sequence_max:
        raise InvariantViolation(
            "MANIFEST-V2: a data file's bounds are in the wrong order", path=file.path
        )
    if file.level < 0:
        raise InvariantViolation(f"MANIFEST-V2: level {file.level}", path=file.path)
    _check_place(file.path, "data/")
    if file.vector is not None:
        _check_place(file.vector.path, "deletes/")
        if file.vector.cardinality > file.row_count:
            raise InvariantViolation(
                "MANIFEST-V3: more rows are marked than there are", path=file.path
            )


def check_added(version: Version, edit: VersionEdit) -> None:
    """Check an edit's new files against the others of the new Version (MANIFEST-V1, MANIFEST-V6).

    The previous Version obeyed the rules, so a new file can only break them with its neighbours.
    Files of level 0 may overlap, and row ids never assigned before are new: so a flush costs
    nothing here.
    """
    order = version.key_order
    for file in edit.added:
        if file.level > 0:
            for path in order.neighbours(file):
                _refuse_overlap(file, version.files[path])
    old_ids = any(
        file.first_row_id is not None and file.first_row_id < version.first_row_id
        for file in edit.added
    )
    _check_row_ids(version.files.values() if old_ids else edit.added)
    if version.next_row_id > _ROW_ID_END_MAX:
        raise InvariantViolation(f"MANIFEST-V6: row ids would reach {version.next_row_id:,}")


def check_version(version: Version) -> None:
    """Check a whole Version (MANIFEST-V1 to MANIFEST-V3, MANIFEST-V5, MANIFEST-V6)."""
    for file in version.files.values():
        check_file(file)
    for left, right in version.key_order.adjacent():
        _refuse_overlap(version.files[left], version.files[right])
    _check_row_ids(version.files.values())


def check_table(head: TableHead, version: Version) -> None:
    """Check that a stored Version belongs to the head's table (MANIFEST-V11)."""
    found = version.facts.table_uuid
    if found not in {"", head.table_uuid}:
        raise InvariantViolation(
            f"MANIFEST-V11: version {version.number} belongs to table {found}, "
            f"not to {head.table_uuid}"
        )


def check_head(before: TableHead | None, after: TableHead) -> None:
    """Check a head by itself, and against the previous one (MANIFEST-V7, MANIFEST-V8)."""
    if after.flushed_sequence > after.last_sequence or after.wal_floor > after.next_log_number:
        raise InvariantViolation(
            f"MANIFEST-V8: flushed {after.flushed_sequence} of {after.last_sequence}, "
            f"floor {after.wal_floor} of log {after.next_log_number}"
        )
    if before is None:
        return
    for name in (
        "current_version",
        "oldest_version",
        "flushed_sequence",
        "last_sequence",
        "next_log_number",
        "wal_floor",
        "writer_epoch",
    ):
        if getattr(after, name) < getattr(before, name):
            raise InvariantViolation(
                f"MANIFEST-V7: {name} would go back from {getattr(before, name)} "
                f"to {getattr(after, name)}"
            )


def check_definition(
    head: TableHead, edits: Sequence[VersionEdit], exists: Callable[[str], bool]
) -> None:
    """Check that a commit's schema and spec are its new head's, and exist (MANIFEST-V9)."""
    if edits:
        facts = edits[-1].facts
        if (facts.schema_id, facts.spec_id) != (head.schema_id, head.spec_id):
            raise InvariantViolation(
                f"MANIFEST-V9: schema {facts.schema_id} and spec {facts.spec_id} are committed, "
                f"but the table has {head.schema_id} and {head.spec_id}"
            )
    for edit in edits:
        check_references(edit.facts, edit.added, exists)


def check_references(
    facts: VersionFacts, files: Iterable[DataFile], exists: Callable[[str], bool]
) -> None:
    """Check that the schemas and specs of a Version and of its files exist (MANIFEST-V9)."""
    ids = {(file.schema_id, file.spec_id) for file in files}
    ids.add((facts.schema_id, facts.spec_id))
    for schema_id, spec_id in sorted(ids):
        for key in (schema_key(schema_id), spec_key(spec_id)):
            if not exists(key):
                raise InvariantViolation(
                    f"MANIFEST-V9: a version refers to {key}, which does not exist"
                )


def _refuse_overlap(one: DataFile, other: DataFile) -> None:
    if one.key_min <= other.key_max and other.key_min <= one.key_max:
        left, right = sorted((one, other), key=lambda file: (file.key_min, file.path))
        raise InvariantViolation(
            f"MANIFEST-V1: in level {left.level}, {left.path} overlaps", path=right.path
        )


def _check_row_ids(files: Iterable[DataFile]) -> None:
    ranges = sorted(
        (file.first_row_id, file.first_row_id + file.row_count, file.path)
        for file in files
        if file.first_row_id is not None
    )
    for (_, end, left), (start, _, right) in pairwise(ranges):
        if start < end:
            raise InvariantViolation(f"MANIFEST-V6: {left} and {right} share row ids", path=right)


def _check_place(path: str, prefix: str) -> None:
    if not path.startswith(prefix):
        raise InvariantViolation(f"MANIFEST-V5: a file outside {prefix}", path=path)
