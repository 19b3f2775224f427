"""What a Version or an edit must be like to be stored and read back.

MANIFEST-F1  No number is negative, and each fits the field that stores it: 31 bits for ids and
             levels, 32 for checksums, 63 for the others.
MANIFEST-F2  Every path could be a file of the table's store: nothing absolute, no `..`.
MANIFEST-F3  No file is named twice among those of a Version, those added, or those removed.

These rules are about storing. Which Versions may be published is the matter of
`neve.manifest.invariants`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from neve.errors import InvalidArgument
from neve.model.data_file import ColumnStatistics, DataFile, VectorRef, WalSegmentRef
from neve.model.version import Version, VersionEdit, VersionFacts
from neve.storage.table_paths import check_path

_INT32_BITS: Final = 31
_UINT32_BITS: Final = 32
_INT64_BITS: Final = 63


def check_version_fits(version: Version) -> None:
    """Refuse, with InvalidArgument, a Version that could not be read back."""
    what = f"version {version.number}"
    _check_numbers(
        what,
        _INT64_BITS,
        number=version.number,
        next_row_id=version.next_row_id,
        first_row_id=version.first_row_id,
    )
    parent = 0 if version.parent is None else version.parent
    if version.parent == 0 or not 0 <= parent < version.number:
        raise InvalidArgument(
            f"{what} cannot follow version {version.parent}",
            hint="Number versions from 1, and a parent before its child",
        )
    _check_facts(what, version.facts)
    for path, file in version.files.items():
        if path != file.path:
            raise InvalidArgument(
                f"{what} lists the file {file.path!a} as {path!a}",
                hint="Key the files of a version by their paths",
            )
    _check_files(version.files.values())


def check_edit_fits(edit: VersionEdit) -> None:
    """Refuse, with InvalidArgument, an edit that could not be read back."""
    what = f"the edit of version {edit.base}"
    _check_numbers(what, _INT64_BITS, base=edit.base, number=edit.base + 1)
    _check_facts(what, edit.facts)
    for path in (*edit.removed, *edit.vectors):
        check_path(path)
    for path, vector in edit.vectors.items():
        check_path(vector.path)
        _check_vector(path, vector)
    _check_files(edit.added)
    _check_named_once("removes", edit.removed)
    _check_named_once("adds", [file.path for file in edit.added])


def _check_facts(what: str, facts: VersionFacts) -> None:
    _check_numbers(what, _INT64_BITS, timestamp_ms=facts.timestamp_ms)
    _check_numbers(
        what,
        _INT32_BITS,
        schema_id=facts.schema_id,
        spec_id=facts.spec_id,
        last_column_id=facts.last_column_id,
    )
    _check_segments(what, facts.wal_segments)


def _check_named_once(verb: str, paths: Sequence[str]) -> None:
    if len(set(paths)) < len(paths):
        ((path, times),) = Counter(paths).most_common(1)
        raise InvalidArgument(
            f"an edit {verb} {path!a} {times} times", hint="Name each file of an edit once"
        )


def _check_files(files: Iterable[DataFile]) -> None:
    vector_paths = set[str]()  # many files share the Puffin file of a commit
    for file in files:
        check_path(file.path)
        _check_file_numbers(file)
        if file.vector is not None:
            vector_paths.add(file.vector.path)
            _check_vector(file.path, file.vector)
    for path in vector_paths:
        check_path(path)


def _check_file_numbers(file: DataFile) -> None:
    _check_numbers(
        file.path,
        _INT64_BITS,
        file_bytes=file.file_bytes,
        row_count=file.row_count,
        sequence_min=file.sequence_min,
        sequence_max=file.sequence_max,
        first_row_id=file.first_row_id or 0,
        data_sequence=file.data_sequence,
        commit_ms_min=file.commit_ms_min,
        commit_ms_max=file.commit_ms_max,
    )
    _check_numbers(
        file.path, _INT32_BITS, level=file.level, spec_id=file.spec_id, schema_id=file.schema_id
    )
    _check_numbers(file.path, _UINT32_BITS, footer_crc=file.footer_crc)
    for member in file.partition:
        _check_numbers(file.path, _INT32_BITS, field_id=member.field_id)
    for column in file.statistics:
        _check_statistics(file.path, column)
    _check_segments(file.path, file.wal_segments)


def _check_statistics(path: str, column: ColumnStatistics) -> None:
    nan_count = column.nan_count or 0
    # A state has more of these than of anything else. One look at all bits: an OR keeps every sign
    # and every high bit.
    counts = column.compressed_bytes | column.value_count | column.null_count | nan_count
    if not (counts >> _INT64_BITS or column.field_id >> _INT32_BITS):
        return
    _check_numbers(path, _INT32_BITS, field_id=column.field_id)
    _check_numbers(
        path,
        _INT64_BITS,
        compressed_bytes=column.compressed_bytes,
        value_count=column.value_count,
        null_count=column.null_count,
        nan_count=nan_count,
    )


def _check_vector(path: str, vector: VectorRef) -> None:
    _check_numbers(
        path,
        _INT64_BITS,
        offset=vector.offset,
        length=vector.length,
        cardinality=vector.cardinality,
    )


def _check_segments(what: str, segments: tuple[WalSegmentRef, ...]) -> None:
    for segment in segments:
        _check_numbers(
            what,
            _INT64_BITS,
            log_number=segment.log_number,
            first_frame=segment.first_frame,
            last_frame=segment.last_frame,
        )


def _check_numbers(what: str, bits: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number >> bits:  # also of a negative number: the shift keeps its sign
            raise InvalidArgument(
                f"{name} {number} of {what} is not between 0 and 2^{bits} - 1",
                hint="Pass the number that was counted or measured",
            )
