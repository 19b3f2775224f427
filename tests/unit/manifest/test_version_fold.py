"""Checkpoints of a table: any retained Version costs a bounded read, and folds give its bytes."""

from random import Random

import pytest

from neve.errors import Corruption, NotFound
from neve.manifest import version_reader
from neve.manifest.mrub import decode_mrub, encode_mrub
from neve.manifest.table_head import (
    HEAD_KEY,
    STATE_PREFIX,
    VERSION_PREFIX,
    Retention,
    read_number,
    version_key,
)
from neve.manifest.version_codec import (
    EditMessage,
    decode_edit,
    decode_version,
    encode_edit,
    encode_version,
    read_edit,
)
from neve.manifest.version_fold import FoldedState, fold_versions
from neve.model.data_file import ColumnStatistics, DataFile, PartitionValue, WalSegmentRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit
from tests.unit.manifest.builders import (
    TableBench,
    data_file,
    edit_of,
    new_table,
    path_of,
    table_with,
    vector_ref,
)


def entries_of(bench: TableBench) -> dict[str, bytes]:
    return dict(bench.store.read().scan(""))


def full_ones(bench: TableBench) -> list[int]:
    return [
        read_number(key, prefix=STATE_PREFIX) for key, _ in bench.store.read().scan(STATE_PREFIX)
    ]


def commit_many(bench: TableBench, count: int, *, per_call: int = 50) -> None:
    """Commit Versions that each replace the file of the one before."""
    base = bench.versions.head().current_version
    for first in range(base, base + count, per_call):
        numbers = range(first, min(first + per_call, base + count))
        edits: list[VersionEdit] = [
            edit_of(number, f"f{number}", removed=() if number == 1 else (f"f{number - 1}",))
            for number in numbers
        ]
        bench.versions.apply_version_edits(edits)
        bench.store.checkpoint_once()


def test_a_store_without_a_table_folds_to_itself() -> None:
    assert fold_versions({"other": b"1"}) == {"other": b"1"}


def test_a_checkpoint_holds_the_newest_version_in_full_and_every_edit() -> None:
    bench = table_with("a", "b", "c")
    before = entries_of(bench)

    bench.store.checkpoint()

    assert full_ones(bench) == [1, 4]
    assert {key: value for key, value in entries_of(bench).items() if key in before} == before


def test_the_next_checkpoint_drops_the_full_version_of_the_last() -> None:
    bench = table_with("a", "b")
    bench.store.checkpoint()
    bench.commit("c")
    bench.store.checkpoint()

    assert full_ones(bench) == [1, 4]


def test_folding_twice_changes_nothing() -> None:
    bench = table_with("a", "b")
    once = fold_versions(entries_of(bench))

    assert fold_versions(dict(once)) == once


def test_a_table_that_was_dropped_and_forgotten_can_be_checkpointed() -> None:
    bench = table_with("a", "b")
    bench.work.drop(purge=True)
    bench.store.checkpoint()
    bench.work.forget()

    assert bench.store.checkpoint()
    assert list(entries_of(bench.another())) == [HEAD_KEY]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_edit_is_corruption_and_no_checkpoint_is_made(number: int) -> None:
    bench = table_with("a", "b")
    bench.store.transact(lambda session: session.delete(version_key(number)))

    with pytest.raises(Corruption, match=f"version {number}"):
        bench.store.checkpoint()


@pytest.mark.parametrize("key", ["state/x", "state/", "state/-1"])
def test_a_foreign_key_among_the_full_versions_is_corruption(key: str) -> None:
    bench = table_with("a")
    bench.store.transact(lambda session: session.put(key, b""))

    with pytest.raises(Corruption):
        bench.store.checkpoint()
    with pytest.raises(Corruption):
        bench.garbage.compute_gc_plan()


def test_versions_stay_readable_through_checkpoints_collection_and_expiry() -> None:
    bench = new_table(retention=Retention(versions=100, milliseconds=0))
    commit_many(bench, 300)
    wanted = {number: bench.versions.version(number) for number in range(202, 302)}

    bench.checkpoint_and_collect()
    bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())
    bench.checkpoint_and_collect()

    other = bench.another()
    assert {number: other.versions.version(number) for number in wanted} == wanted
    assert [version.number for version in other.versions.list_versions()] == [*wanted][::-1]
    with pytest.raises(NotFound, match="Use a version from 202 to 301"):
        other.versions.version(201)
    assert not [key for key in entries_of(other) if key == version_key(201)]


def test_a_process_that_has_not_seen_the_checkpoint_reads_what_is_left_by_an_expiry() -> None:
    bench = table_with("a", "b")
    other = bench.another()
    other.versions.head()  # knows every segment, and goes on from there without the checkpoint
    bench.store.checkpoint()

    bench.expire()

    assert other.versions.snapshot_latest() == bench.versions.snapshot_latest()
    other.commit("c")
    other.checkpoint_and_collect()
    assert list(bench.versions.version(4).files) == [path_of("a"), path_of("b"), path_of("c")]


def test_what_expires_leaves_no_trace_in_the_store() -> None:
    bench = new_table(retention=Retention(versions=1, milliseconds=0))
    sizes = []
    for _ in range(4):
        commit_many(bench, 100)
        bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())
        bench.delete_garbage()
        bench.checkpoint_and_collect()
        sizes.append(sum(len(key) + len(value) for key, value in entries_of(bench).items()))

    assert max(sizes) - min(sizes) < 50
    versions = [key for key in entries_of(bench) if key.startswith(VERSION_PREFIX)]
    assert len(versions) == 1
    assert len(full_ones(bench)) == 1


def test_of_ten_thousand_versions_any_is_read_from_at_most_a_thousand_edits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = new_table(retention=Retention(versions=100_000))
    commit_many(bench, 10_000)
    bench.checkpoint_and_collect()
    edits_read = 0

    def count(frame: bytes, *, path: str) -> VersionEdit:
        nonlocal edits_read
        edits_read += 1
        return decode_edit(frame, path=path)

    monkeypatch.setattr(version_reader, "decode_edit", count)

    newest = bench.another().versions.snapshot_latest().version
    assert (newest.number, edits_read) == (10_001, 0)
    for number in (1, 2, 999, 1_000, 1_999, 5_500, 9_999, 10_000):
        edits_read = 0
        version = bench.another().versions.version(number)
        assert list(version.files) == ([path_of(f"f{number - 1}")] if number > 1 else [])
        assert edits_read < 1_000
    edits_read = 0
    assert len(bench.another().versions.list_versions()) == 10_001
    assert edits_read == 10_000
    assert full_ones(bench) == [1, *range(1_000, 10_001, 1_000), 10_001]


def test_a_plan_over_ten_thousand_versions_reads_each_edit_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = new_table(retention=Retention(versions=10, milliseconds=0))
    commit_many(bench, 10_000)
    bench.checkpoint_and_collect()
    edits_read = 0

    def count(frame: bytes, *, path: str) -> VersionEdit:
        nonlocal edits_read
        edits_read += 1
        return decode_edit(frame, path=path)

    monkeypatch.setattr(version_reader, "decode_edit", count)

    plan = bench.another().garbage.compute_gc_plan()

    assert len(plan.expired_versions) == 9_991
    assert len(plan.paths) == 9_990
    assert edits_read < 25_000
    bench.garbage.apply_gc_plan(plan)
    assert len(bench.delete_garbage()) == 9_990
    assert bench.another().versions.head().oldest_version == 9_992


def test_a_file_that_stays_is_in_every_version_in_full() -> None:
    bench = new_table()
    bench.commit(data_file("keeper", rows=3))
    for index in range(5):
        bench.commit(f"f{index}")
        bench.checkpoint_and_collect()

    for number in range(2, 8):
        assert path_of("keeper") in bench.another().versions.version(number).files


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
