"""Hypothesis strategies for the values of neve.

Everything drawn is valid: a history of edits applies in order, and each of its Versions obeys the
rules of `neve.manifest.invariants`. Numbers sit at the ends of their ranges more often than chance
would have it.
"""

from typing import Final

from hypothesis import strategies as st

from neve.model.data_file import (
    ColumnStatistics,
    DataFile,
    FileFormat,
    PartitionValue,
    VectorRef,
    WalSegmentRef,
)
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_ROWS_MAX: Final = 1 << 40

# Fields 500 (a number) and 501 (bytes) of a neve to come.
_FUTURE_FIELDS: Final = (bytes.fromhex("a01f05"), bytes.fromhex("aa1f03616263a01f00"))


def numbers(largest: int, *, smallest: int = 0) -> st.SearchStrategy[int]:
    """Draw from `smallest` to `largest`, both often among them."""
    return (
        st.sampled_from([smallest, largest])
        | st.integers(smallest, min(largest, smallest + 200))
        | st.integers(smallest, largest)
    )


def unread_fields() -> st.SearchStrategy[bytes]:
    """Draw nothing, or stored fields that this neve has no name for."""
    return st.just(b"") | st.sampled_from(_FUTURE_FIELDS)


def wal_segments() -> st.SearchStrategy[tuple[WalSegmentRef, ...]]:
    """Draw the stretches of logs that some rows came from."""

    @st.composite
    def segment(draw: st.DrawFn) -> WalSegmentRef:
        first = draw(numbers(_INT64_MAX))
        return WalSegmentRef(
            log_number=draw(numbers(_INT64_MAX)),
            file_id=draw(st.text(max_size=8)),
            first_frame=first,
            last_frame=draw(numbers(_INT64_MAX, smallest=first)),
        )

    return st.lists(segment(), max_size=2).map(tuple)


@st.composite
def column_statistics(draw: st.DrawFn) -> ColumnStatistics:
    """Draw what is known about one column."""
    values = draw(numbers(_INT64_MAX))
    nulls = draw(numbers(values))
    return ColumnStatistics(
        field_id=draw(numbers(_INT32_MAX)),
        compressed_bytes=draw(numbers(_INT64_MAX)),
        value_count=values,
        null_count=nulls,
        nan_count=draw(st.none() | numbers(values - nulls)),
        lower=draw(st.none() | st.binary(max_size=5)),
        upper=draw(st.none() | st.binary(max_size=5)),
    )


@st.composite
def vector_refs(draw: st.DrawFn, *, row_count: int, cardinality_min: int = 0) -> VectorRef:
    """Draw a vector that marks from `cardinality_min` to `row_count` rows."""
    return VectorRef(
        path=f"deletes/{draw(numbers(_INT64_MAX)):x}.puffin",
        offset=draw(numbers(_INT64_MAX)),
        length=draw(numbers(_INT64_MAX)),
        cardinality=draw(numbers(row_count, smallest=cardinality_min)),
    )


@st.composite
def data_files(draw: st.DrawFn, *, serial: int = 0, first_row_id: int | None = None) -> DataFile:
    """Draw a file; those of different `serial` have different paths and keys that never overlap."""
    rows = draw(numbers(_ROWS_MAX, smallest=1))
    sequences = sorted(draw(st.tuples(numbers(_INT64_MAX), numbers(_INT64_MAX))))
    commits = sorted(draw(st.tuples(numbers(_INT64_MAX), numbers(_INT64_MAX))))
    keys = sorted(draw(st.tuples(st.binary(max_size=4), st.binary(max_size=4))))
    partition = draw(st.sampled_from(["", "day=2026-11-15/", "name=é %2F😀/"]))
    return DataFile(
        path=f"data/{partition}{serial:016x}.parquet",
        file_bytes=draw(numbers(_INT64_MAX, smallest=1)),
        row_count=rows,
        level=draw(numbers(_INT32_MAX)),
        key_min=serial.to_bytes(8, "big") + keys[0],
        key_max=serial.to_bytes(8, "big") + keys[1],
        sequence_min=sequences[0],
        sequence_max=sequences[1],
        format=draw(st.sampled_from(FileFormat)),
        vector=draw(st.none() | vector_refs(row_count=rows)),
        first_row_id=first_row_id,
        footer_crc=draw(numbers((1 << 32) - 1)),
        spec_id=draw(numbers(_INT32_MAX)),
        partition=tuple(
            PartitionValue(field_id=field_id, value=draw(st.none() | st.binary(max_size=4)))
            for field_id in draw(st.lists(numbers(_INT32_MAX), max_size=2))
        ),
        schema_id=draw(numbers(_INT32_MAX)),
        statistics=tuple(draw(st.lists(column_statistics(), max_size=2))),
        commit_ms_min=commits[0],
        commit_ms_max=commits[1],
        wal_segments=draw(wal_segments()),
        unread=draw(unread_fields()),
    )


@st.composite
def version_facts(draw: st.DrawFn) -> VersionFacts:
    """Draw what a commit says about itself."""
    return VersionFacts(
        operation=draw(st.sampled_from(Operation)),
        timestamp_ms=draw(numbers(_INT64_MAX)),
        schema_id=draw(numbers(_INT32_MAX)),
        spec_id=draw(numbers(_INT32_MAX)),
        summary=draw(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=3)),
        wal_segments=draw(wal_segments()),
        unread=draw(unread_fields()),
    )


@st.composite
def version_edits(draw: st.DrawFn, version: Version | None = None) -> VersionEdit:
    """Draw an edit that fits a Version: it removes files, marks rows of others, adds new ones."""
    files = () if version is None else tuple(version.files.values())
    fates = draw(st.lists(st.sampled_from("krv"), min_size=len(files), max_size=len(files)))
    base = 0 if version is None else version.number
    next_row_id = 0 if version is None else version.next_row_id
    added = []
    for place in range(draw(st.integers(0, 3))):
        first_row_id = draw(st.just(next_row_id) | st.none())
        file = draw(data_files(serial=(base << 8) + place, first_row_id=first_row_id))
        next_row_id += 0 if first_row_id is None else file.row_count
        added.append(file)
    return VersionEdit(
        base=base,
        facts=draw(version_facts()),
        added=tuple(added),
        removed=tuple(file.path for file, fate in zip(files, fates, strict=True) if fate == "r"),
        vectors={
            file.path: draw(
                vector_refs(row_count=file.row_count, cardinality_min=file.deleted_count)
            )
            for file, fate in zip(files, fates, strict=True)
            if fate == "v"
        },
    )


@st.composite
def edit_histories(draw: st.DrawFn) -> tuple[VersionEdit, ...]:
    """Draw one to four edits, the first of an empty table, each of the Version before it."""
    version: Version | None = None
    edits = []
    for _ in range(draw(st.integers(1, 4))):
        edit = draw(version_edits(version))
        version = apply_edit(version, edit)
        edits.append(edit)
    return tuple(edits)


@st.composite
def versions(draw: st.DrawFn) -> Version:
    """Draw a Version that some edits led to."""
    version: Version | None = None
    for edit in draw(edit_histories()):
        version = apply_edit(version, edit)
    assert version is not None
    return version
