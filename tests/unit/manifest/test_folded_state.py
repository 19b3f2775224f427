"""FoldedState: edits folded on messages give the bytes of the Version they make."""

from random import Random

import pytest

from neve.errors import Corruption
from neve.manifest.mrub import decode_mrub, encode_mrub
from neve.manifest.version_codec import (
    EditMessage,
    decode_edit,
    decode_version,
    encode_edit,
    encode_version,
    read_edit,
)
from neve.manifest.version_fold import FoldedState
from neve.model.data_file import ColumnStatistics, DataFile, PartitionValue, WalSegmentRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit
from tests.unit.manifest.builders import data_file, edit_of, path_of, vector_ref


def rich_file(rng: Random, name: str, first_row_id: int) -> DataFile:
    return DataFile(
        path=path_of(name),
        file_bytes=rng.randint(1, 1 << 40),
        row_count=rng.randint(100, 1_000),
        level=rng.randrange(3),
        key_min=rng.randbytes(3),
        key_max=b"\xff" * 4,
        vector=vector_ref(name, marked=1) if rng.random() < 0.2 else None,
        first_row_id=first_row_id,
        footer_crc=rng.getrandbits(32),
        partition=(PartitionValue(field_id=1, value=rng.choice((None, b"", b"x"))),),
        statistics=(
            ColumnStatistics(
                field_id=1, compressed_bytes=9, value_count=3, null_count=0, lower=b"", upper=b"z"
            ),
        ),
        wal_segments=(WalSegmentRef(log_number=1, file_id="", first_frame=0, last_frame=4),),
    )


def rich_facts(rng: Random, number: int) -> VersionFacts:
    return VersionFacts(
        operation=rng.choice(list(Operation)),
        timestamp_ms=number,
        schema_id=rng.randrange(2),
        spec_id=0,
        summary={f"key{n}": "v" for n in range(rng.randrange(4))},
        wal_segments=(WalSegmentRef(log_number=number, file_id="f", first_frame=0, last_frame=1),)[
            : rng.randrange(2)
        ],
    )


def random_edit(rng: Random, version: Version | None, old: list[DataFile]) -> VersionEdit:
    """Add, remove and mark at random; sometimes bring a file back that was removed before."""
    number = 0 if version is None else version.number
    files = {} if version is None else dict(version.files)
    removed = rng.sample(list(files), min(len(files), rng.randrange(3)))
    kept = [path for path in files if path not in removed]
    marked = rng.sample(kept, min(len(kept), rng.randrange(2)))
    next_row_id = 0 if version is None else version.next_row_id
    added = [
        rich_file(rng, f"{number}-{n}", next_row_id + n * 1_000) for n in range(rng.randrange(3))
    ]
    added += [file for file in rng.sample(old, min(len(old), 1)) if file.path not in kept]
    old += [files[path] for path in removed]
    return VersionEdit(
        base=number,
        facts=rich_facts(rng, number + 1),
        added=tuple({file.path: file for file in added}.values()),
        removed=tuple(removed),
        vectors={path: vector_ref(f"v{number}", marked=50) for path in marked},
    )


def message(edit: VersionEdit) -> EditMessage:
    return read_edit(encode_edit(edit), path="here")


@pytest.mark.parametrize("seed", range(10))
def test_the_bytes_are_those_of_the_version_encoded_as_a_whole(seed: int) -> None:
    rng = Random(seed)
    version: Version | None = None
    old: list[DataFile] = []
    state = FoldedState()
    for _ in range(40):
        edit = random_edit(rng, version, old)
        version = apply_edit(version, edit)
        state.apply(message(edit))
        if rng.random() < 0.4:
            assert state.encode() == encode_version(version)
        if rng.random() < 0.2:  # another process goes on from what was stored
            state = FoldedState.read(encode_version(version), path="here")

    assert version is not None
    assert state.number == version.number
    assert decode_version(state.encode(), path="here") == version


def test_a_version_that_no_edit_changed_stays_the_very_bytes() -> None:
    frame = encode_version(apply_edit(None, edit_of(0, "a")))

    assert FoldedState.read(frame, path="here").encode() is frame


def test_what_a_newer_neve_stored_about_files_and_commits_stays() -> None:
    manifest = decode_mrub(encode_edit(edit_of(0, "a")), path="here")
    manifest.MergeFromString(b"\xfa\x3e\x03new")
    manifest.data_files[0].MergeFromString(b"\xfa\x3e\x04file")
    manifest.data_files[0].statistics.add(field_id=1).MergeFromString(b"\xfa\x3e\x05below")
    first = encode_mrub(manifest)
    state = FoldedState()

    state.apply(read_edit(first, path="here"))
    assert decode_version(state.encode(), path="here") == apply_edit(
        None, decode_edit(first, path="here")
    )
    state.apply(message(edit_of(1, "b")))

    stored = decode_mrub(state.encode(), path="here")
    assert b"\xfa\x3e\x04file" in stored.data_files[0].SerializeToString()
    assert b"\xfa\x3e\x05below" in stored.data_files[0].SerializeToString()
    assert b"\xfa\x3e\x03new" not in stored.SerializeToString()  # that was about the commit before


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (edit_of(1, removed=["gone"]), "removes"),
        (edit_of(1, vectors={"gone": vector_ref("v", marked=1)}), "marks rows of"),
        (edit_of(1, "a"), "adds a file twice"),
        (edit_of(2, "b"), "cannot follow"),
        (edit_of(0, "b"), "cannot follow"),
    ],
)
def test_an_edit_that_does_not_fit_is_corruption(edit: VersionEdit, what: str) -> None:
    state = FoldedState()
    state.apply(message(edit_of(0, "a")))

    with pytest.raises(Corruption, match=what):
        state.apply(message(edit))


def test_a_stored_version_that_names_a_file_twice_is_corruption() -> None:
    manifest = decode_mrub(encode_version(apply_edit(None, edit_of(0, "a"))), path="here")
    manifest.data_files.add().CopyFrom(manifest.data_files[0])

    with pytest.raises(Corruption, match="twice"):
        FoldedState.read(encode_mrub(manifest), path="here")


def test_an_edit_does_not_stand_for_a_version() -> None:
    with pytest.raises(Corruption, match="FORM_EDIT"):
        FoldedState.read(encode_edit(edit_of(0, "a")), path="here")


def test_the_names_that_an_edit_brings_are_its_new_files_and_all_vectors() -> None:
    edit = edit_of(
        1,
        data_file("new", vector=vector_ref("of-new", marked=1)),
        removed=["old"],
        vectors={"kept": vector_ref("of-kept", marked=2)},
    )

    assert set(message(edit).brought) == {
        path_of("new"),
        "deletes/of-new.puffin",
        "deletes/of-kept.puffin",
    }
