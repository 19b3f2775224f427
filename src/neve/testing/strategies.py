"""Hypothesis strategies for the values of neve.

Everything drawn is valid: a history of edits applies in order, and each of its Versions obeys the
rules of `neve.manifest.invariants`.
"""

from typing import Final

from hypothesis import strategies as st

from neve.model.data_file import (
    ROW_FORMATS,
    ColumnStatistics,
    DataFile,
    PartitionValue,
    VectorRef,
    WalSegmentRef,
)
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit

_ROWS_MAX: Final = 1 << 40

_ids = st.integers(0, (1 << 31) - 1)
_counts = st.integers(0, (1 << 63) - 1)
_pairs = st.tuples(_counts, _counts).map(sorted)
_bytes = st.binary(max_size=4)
_optional_bytes = st.none() | _bytes
_texts = st.text(max_size=6)

# Fields 500 (a number) and 501 (bytes) of a future neve.
_unread = st.sampled_from([b"", b"", bytes.fromhex("a01f05"), bytes.fromhex("aa1f03616263a01f00")])

_wal_segments = st.lists(
    st.builds(
        lambda log_number, file_id, frames: WalSegmentRef(
            log_number=log_number, file_id=file_id, first_frame=frames[0], last_frame=frames[1]
        ),
        _counts,
        _texts,
        _pairs,
    ),
    max_size=2,
).map(tuple)

_statistics = st.lists(
    st.builds(
        ColumnStatistics,
        field_id=_ids,
        compressed_bytes=_counts,
        value_count=_counts,
        null_count=_counts,
        nan_count=st.none() | _counts,
        lower=_optional_bytes,
        upper=_optional_bytes,
    ),
    max_size=2,
).map(tuple)

_partitions = st.lists(
    st.builds(PartitionValue, field_id=_ids, value=_optional_bytes), max_size=2
).map(tuple)

_partition_paths = st.sampled_from(["", "day=2026-11-15/", "name=é %2F😀/"])


@st.composite
def vector_refs(draw: st.DrawFn, *, row_count: int, cardinality_min: int = 0) -> VectorRef:
    """Draw a vector that marks from `cardinality_min` to `row_count` rows."""
    return VectorRef(
        path=f"deletes/{draw(_counts):x}.puffin",
        offset=draw(_counts),
        length=draw(_counts),
        cardinality=draw(st.integers(cardinality_min, row_count)),
    )


@st.composite
def data_files(draw: st.DrawFn, *, serial: int = 0, first_row_id: int | None = None) -> DataFile:
    """Draw a file; those of different `serial` have different paths and keys that never overlap."""
    rows = draw(st.integers(1, _ROWS_MAX))
    sequences, commits = draw(_pairs), draw(_pairs)
    keys = sorted([draw(_bytes), draw(_bytes)])
    return DataFile(
        path=f"data/{draw(_partition_paths)}{serial:016x}.parquet",
        file_bytes=1 + draw(_ids),
        row_count=rows,
        level=draw(_ids),
        key_min=serial.to_bytes(8, "big") + keys[0],
        key_max=serial.to_bytes(8, "big") + keys[1],
        sequence_min=sequences[0],
        sequence_max=sequences[1],
        format=draw(st.sampled_from(ROW_FORMATS)),
        vector=draw(st.none() | vector_refs(row_count=rows)),
        first_row_id=first_row_id,
        footer_crc=draw(st.integers(0, (1 << 32) - 1)),
        spec_id=draw(_ids),
        partition=draw(_partitions),
        schema_id=draw(_ids),
        statistics=draw(_statistics),
        commit_ms_min=commits[0],
        commit_ms_max=commits[1],
        wal_segments=draw(_wal_segments),
        unread=draw(_unread),
    )


def version_facts() -> st.SearchStrategy[VersionFacts]:
    """Draw what a commit says about itself."""
    return st.builds(
        VersionFacts,
        operation=st.sampled_from(Operation),
        timestamp_ms=_counts,
        schema_id=_ids,
        spec_id=_ids,
        summary=st.dictionaries(_texts, _texts, max_size=3),
        wal_segments=_wal_segments,
        unread=_unread,
    )


@st.composite
def version_edits(draw: st.DrawFn, version: Version | None = None) -> VersionEdit:
    """Draw an edit that fits a Version: it removes files, marks rows of others, adds files."""
    files = () if version is None else tuple(version.files.values())
    fates = {file.path: draw(st.sampled_from(["stays", "goes", "is marked"])) for file in files}
    base = 0 if version is None else version.number
    next_row_id = 0 if version is None else version.next_row_id
    added = []
    for place in range(draw(st.integers(0, 2))):
        first_row_id = draw(st.sampled_from([next_row_id, None]))
        file = draw(data_files(serial=(base << 8) + place, first_row_id=first_row_id))
        next_row_id += 0 if first_row_id is None else file.row_count
        added.append(file)
    return VersionEdit(
        base=base,
        facts=draw(version_facts()),
        added=tuple(added),
        removed=tuple(file.path for file in files if fates[file.path] == "goes"),
        vectors={
            file.path: draw(
                vector_refs(row_count=file.row_count, cardinality_min=file.deleted_count)
            )
            for file in files
            if fates[file.path] == "is marked"
        },
    )


@st.composite
def edit_histories(draw: st.DrawFn) -> tuple[VersionEdit, ...]:
    """Draw one to three edits, the first of an empty table, each of the Version before it."""
    version: Version | None = None
    edits = []
    for _ in range(draw(st.integers(1, 3))):
        edit = draw(version_edits(version))
        version = apply_edit(version, edit)
        edits.append(edit)
    return tuple(edits)


def versions() -> st.SearchStrategy[Version]:
    """Draw a Version that some edits led to."""
    return edit_histories().map(_fold)


def _fold(edits: tuple[VersionEdit, ...]) -> Version:
    version = apply_edit(None, edits[0])
    for edit in edits[1:]:
        version = apply_edit(version, edit)
    return version
