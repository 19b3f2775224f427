"""Commits of a table: created once, based on the current Version, fenced, exactly once, whole."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from neve.errors import (
    AlreadyExists,
    Conflict,
    Corruption,
    Fenced,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from neve.manifest.manifest_log import Decision, Loaded
from neve.manifest.mrub import decode_mrub, encode_mrub
from neve.manifest.retry import Patience
from neve.manifest.sessions import WriteSession
from neve.manifest.state import Records
from neve.manifest.table_head import HEAD_KEY, HeadChange, spec_key, version_key
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_codec import encode_edit
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit
from neve.testing.faulty_store import Fault, FaultyStore, PlannedFault
from neve.testing.faulty_store import Operation as Call
from tests.unit.manifest.builders import (
    PREFIX,
    UUID,
    TableBench,
    data_file,
    edit_of,
    facts,
    new_table,
    path_of,
    table_with,
    vector_ref,
)


def files_of(version: Version) -> list[str]:
    return list(version.files)


def before_the_slot_is_decided(bench: TableBench, act: Callable[[], object]) -> None:
    """Let something happen once, between a transaction's reading and its commit."""
    decide = bench.store.log.decide

    def decide_later(base: Loaded, records: Records, patience: Patience) -> tuple[Decision, Loaded]:
        bench.store.log.decide = decide  # type: ignore[method-assign]
        act()
        return decide(base, records, patience)

    bench.store.log.decide = decide_later  # type: ignore[method-assign]


# Creating.


def test_a_table_that_was_never_created_is_not_found() -> None:
    bench = TableBench()

    for act in (bench.versions.head, bench.versions.snapshot_latest, bench.versions.wal_floor):
        with pytest.raises(NotFound, match="no such table"):
            act()


def test_creating_commits_version_1() -> None:
    bench = TableBench()

    created = bench.create()

    assert not created.is_repeat
    assert created.snapshot.version.number == 1
    assert created.snapshot.version.parent is None
    assert created.snapshot.version.facts.operation is Operation.CREATE
    assert created.snapshot.head.last_transaction_ms == bench.clock.now_ms()
    assert bench.another().versions.snapshot_latest() == created.snapshot


def test_creating_again_with_the_same_uuid_leaves_the_table_as_it_is() -> None:
    bench = table_with("a")
    before = bench.segment()

    again = bench.another().create()

    assert again.is_repeat
    assert again.snapshot == bench.versions.snapshot_latest()
    assert bench.segment() == before


def test_creating_another_table_in_the_same_place_is_refused() -> None:
    bench = table_with("a")
    before = bench.segment()

    with pytest.raises(AlreadyExists):
        bench.create(uuid="22222222-2222-4222-8222-222222222222")

    assert bench.segment() == before


# Committing.


def test_an_edit_of_an_older_version_is_a_conflict_and_nothing_is_written() -> None:
    bench = table_with("a", "b")
    before = bench.segment()

    with pytest.raises(Conflict, match="at version 3, not 2") as caught:
        bench.versions.apply_version_edits([edit_of(2, "c")])

    assert caught.value.keys == (HEAD_KEY,)
    assert bench.segment() == before


def test_an_edit_of_a_version_to_come_is_a_conflict() -> None:
    bench = table_with("a")

    with pytest.raises(Conflict):
        bench.versions.apply_version_edits([edit_of(3, "c")])


def test_of_two_committers_on_one_version_one_wins() -> None:
    bench = table_with("a")
    other = bench.another()
    before_the_slot_is_decided(bench, lambda: other.commit("theirs"))

    with pytest.raises(Conflict):
        bench.versions.apply_version_edits([edit_of(2, "mine")])

    assert files_of(bench.versions.snapshot_latest().version) == [path_of("a"), path_of("theirs")]


def test_several_edits_of_one_call_are_several_versions() -> None:
    bench = table_with("a")
    edits = [
        edit_of(2, "b"),
        edit_of(3, vectors={"b": vector_ref("1", marked=3)}, operation=Operation.DELETE),
        edit_of(4, "c", removed=("a",), operation=Operation.REPLACE),
    ]
    before = bench.segment()

    committed = bench.versions.apply_version_edits(edits)

    assert bench.segment() == before + 1
    assert committed.snapshot.version.number == 5
    assert committed.snapshot.head.current_version == 5
    found = bench.another().versions.list_versions()
    assert [version.number for version in found] == [5, 4, 3, 2, 1]
    assert [version.parent for version in found] == [4, 3, 2, 1, None]
    assert [version.row_count for version in found] == [17, 17, 20, 10, 0]
    assert files_of(found[0]) == [path_of("b"), path_of("c")]


def test_edits_that_do_not_follow_each_other_are_refused() -> None:
    bench = table_with("a")
    before = bench.segment()

    with pytest.raises(InvalidArgument, match="cannot follow"):
        bench.versions.apply_version_edits([edit_of(2, "b"), edit_of(2, "c")])

    assert bench.segment() == before


def test_a_call_without_edits_moves_only_the_head() -> None:
    bench = table_with("a")

    committed = bench.versions.apply_version_edits([], HeadChange(next_log_number=4, wal_floor=3))

    assert committed.snapshot.version.number == 2
    assert bench.another().versions.wal_floor() == 3


def test_new_files_get_the_next_row_ids() -> None:
    bench = table_with("a")

    bench.commit(data_file("b", rows=7), data_file("c", rows=1))
    bench.commit("d", removed=("a", "c"))

    version = bench.another().versions.snapshot_latest().version
    assert [file.first_row_id for file in version.files.values()] == [10, 18]
    assert (version.first_row_id, version.next_row_id) == (18, 28)


def test_new_files_get_the_number_of_their_version_and_others_keep_theirs() -> None:
    bench = table_with("a")
    back = replace(data_file("e", first_row_id=40), data_sequence=1)

    bench.commit("b")
    bench.commit("c", back)

    files = bench.another().versions.snapshot_latest().version.files.values()
    assert [file.data_sequence for file in files] == [2, 3, 4, 1]


def test_times_of_versions_never_run_backwards() -> None:
    bench = new_table()
    start_ms = bench.clock.now_ms()
    jumps = (5_000, -86_400_000, 10, -1, 100_000_000, -100_000_000)

    for index, jump in enumerate(jumps):
        bench.clock.set_now_ms(bench.clock.now_ms() + jump)
        bench.commit(f"f{index}")

    times = [version.facts.timestamp_ms for version in bench.versions.list_versions()][::-1]
    assert times == sorted(times)
    assert times[1] == start_ms + 5_000
    assert bench.versions.head().last_transaction_ms == times[-1]


def test_an_edit_may_take_a_file_away_and_bring_it_back_with_fewer_rows_marked() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, vectors={"a": vector_ref("1", marked=5)})])

    assert bench.roll_back(2) == 4

    version = bench.another().versions.snapshot_latest().version
    assert version.files[path_of("a")] == bench.versions.version(2).files[path_of("a")]
    assert version.facts.operation is Operation.ROLLBACK
    assert version.row_count == 10


def test_a_rollback_that_does_not_say_to_where_is_refused() -> None:
    bench = table_with("a")

    with pytest.raises(InvalidArgument, match="restores"):
        bench.versions.apply_version_edits([edit_of(2, operation=Operation.ROLLBACK)])


def test_a_rollback_to_a_version_that_expired_meanwhile_is_refused() -> None:
    bench = table_with("a")
    bench.replace_file("a", "b")
    other = bench.another()
    target, current = bench.versions.version(2), bench.versions.snapshot_latest().version
    edit = VersionEdit(
        base=3,
        facts=facts(Operation.ROLLBACK),
        removed=tuple(current.files),
        added=tuple(target.files.values()),
    )
    before_the_slot_is_decided(bench, other.expire)

    with pytest.raises(NotFound, match="version 2"):
        bench.versions.apply_version_edits([edit], HeadChange(restored_version=2))

    assert files_of(bench.versions.snapshot_latest().version) == [path_of("b")]
    assert other.delete_garbage() == [path_of("a")]


def test_a_commit_that_storage_refuses_writes_nothing() -> None:
    bench = table_with("a")
    faulty = FaultyStore(
        bench.objects,
        [PlannedFault(fault=Fault.BEFORE, operation=Call.PUT_IF_ABSENT, times=1_000)],
    )
    broken = TableBench(faulty, clock=bench.clock)

    with pytest.raises(Unavailable):
        broken.versions.apply_version_edits([edit_of(2, "b")])

    assert bench.versions.snapshot_latest().version.number == 2
    assert broken.versions.snapshot_latest().version.number == 2


# Fencing and dropping.


def test_a_writer_that_was_taken_over_is_fenced_and_writes_nothing() -> None:
    bench = table_with("a")
    first = bench.work.take_over()
    second = bench.another().work.take_over()
    before = bench.segment()

    with pytest.raises(Fenced, match=f"epoch {first}"):
        bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(writer_epoch=first))

    assert bench.segment() == before
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(writer_epoch=second))
    assert bench.versions.head().current_version == 3


def test_a_takeover_while_a_commit_is_under_way_fences_it() -> None:
    bench = table_with("a")
    epoch = bench.work.take_over()
    other = bench.another()
    before_the_slot_is_decided(bench, other.work.take_over)

    with pytest.raises(Fenced):
        bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(writer_epoch=epoch))

    assert other.versions.snapshot_latest().version.number == 2


def test_a_committer_without_an_epoch_is_not_fenced() -> None:
    bench = table_with("a")
    bench.work.take_over()

    assert bench.commit("b") == 3


def test_a_dropped_table_takes_no_commit() -> None:
    bench = table_with("a")
    bench.another().work.drop()
    before = bench.segment()

    with pytest.raises(NotFound, match="dropped"):
        bench.versions.apply_version_edits([edit_of(2, "b")])
    with pytest.raises(NotFound, match="dropped"):
        bench.work.take_over()

    assert bench.segment() == before


def test_a_drop_while_a_commit_is_under_way_wins() -> None:
    bench = table_with("a")
    other = bench.another()
    before_the_slot_is_decided(bench, other.work.drop)

    with pytest.raises(NotFound, match="dropped"):
        bench.versions.apply_version_edits([edit_of(2, "b")])


# Exactly once.


def assert_committed_once(bench: TableBench, change: HeadChange) -> None:
    first = bench.versions.apply_version_edits([edit_of(2, "b")], change)
    assert not first.is_repeat
    before = bench.segment()

    repeated = bench.another().versions.apply_version_edits([edit_of(2, "b")], change)

    assert repeated.is_repeat
    assert repeated.snapshot.version == first.snapshot.version
    assert bench.segment() == before
    assert bench.versions.committed_before(change) == repeated


def test_a_batch_of_an_application_is_committed_once() -> None:
    assert_committed_once(table_with("a"), HeadChange(application=("app", 7)))


def test_a_job_is_committed_once() -> None:
    assert_committed_once(table_with("a"), HeadChange(job_id="job"))


def test_a_newer_batch_and_one_of_another_application_are_no_repeats() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(application=("app", 7)))

    newer = bench.versions.apply_version_edits(
        [edit_of(3, "c")], HeadChange(application=("app", 8))
    )
    other = bench.versions.apply_version_edits([edit_of(4, "d")], HeadChange(application=("b", 0)))

    assert (newer.is_repeat, other.is_repeat) == (False, False)


def test_a_batch_before_the_last_is_refused_for_its_rows_may_never_have_been_written() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(application=("app", 7)))
    older = HeadChange(application=("app", 6))

    with pytest.raises(InvalidArgument, match="batch 6 of 'app' is older than batch 7") as failed:
        bench.versions.apply_version_edits([edit_of(3, "c")], older)
    with pytest.raises(InvalidArgument, match="batch 6"):
        bench.versions.committed_before(older)

    assert "another name" in (failed.value.hint or "")
    assert bench.versions.snapshot_latest().version.number == 3


@pytest.mark.parametrize("change", [HeadChange(application=("app", 7)), HeadChange(job_id="job")])
def test_exactly_once_holds_across_checkpoints_expiry_and_dropping(change: HeadChange) -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], change)
    for index in range(3):
        bench.commit(f"later{index}")
    bench.expire()
    bench.delete_garbage()
    bench.checkpoint_and_collect()
    before = bench.segment()

    repeated = bench.another().versions.apply_version_edits([edit_of(6, "b")], change)

    assert repeated.is_repeat
    assert repeated.snapshot.version.number == 6  # the oldest that is left
    bench.work.drop()
    assert bench.another().versions.apply_version_edits([edit_of(6, "b")], change).is_repeat
    assert bench.segment() == before + 1


def test_two_that_commit_one_job_at_the_same_time_commit_it_once() -> None:
    bench = table_with("a")
    other = bench.another()
    change = HeadChange(job_id="job")

    def commit_theirs() -> None:
        other.versions.apply_version_edits([edit_of(2, "b")], change)

    before_the_slot_is_decided(bench, commit_theirs)

    assert bench.versions.apply_version_edits([edit_of(2, "b")], change).is_repeat
    assert bench.versions.head().current_version == 3


@pytest.mark.parametrize(
    "change",
    [
        HeadChange(application=("", 1)),
        HeadChange(application=("a\n", 1)),
        HeadChange(application=("app", -1)),
        HeadChange(application=("app", 1 << 63)),
        HeadChange(job_id=""),
        HeadChange(job_id="\ud800"),
        HeadChange(intent_id="x" * 300),
        HeadChange(schema_id=-1),
        HeadChange(flushed_sequence=1 << 63),
    ],
)
def test_a_change_that_could_not_be_read_back_is_refused(change: HeadChange) -> None:
    bench = table_with("a")
    before = bench.segment()

    with pytest.raises((InvalidArgument, NotFound)):
        bench.versions.apply_version_edits([edit_of(2, "b")], change)

    assert bench.segment() == before
    assert bench.commit("c") == 3


# Schemas and specs.


def test_a_new_schema_and_spec_are_kept_beside_the_old_ones() -> None:
    bench = table_with("a")
    edit = edit_of(2, operation=Operation.EVOLVE)

    bench.versions.apply_version_edits(
        [replace(edit, facts=replace(edit.facts, schema_id=1, spec_id=1))],
        HeadChange(schema_id=1, spec_id=1),
        schema='{"schema-id":1}',
        spec='{"spec-id":1}',
    )

    other = bench.another().versions
    assert other.schema_json(0) == '{"schema-id":0}'
    assert other.schema_json(1) == '{"schema-id":1}'
    assert other.store.read().get(spec_key(1)) == b'{"spec-id":1}'
    assert (other.head().schema_id, other.head().spec_id) == (1, 1)


def test_what_a_schema_id_stands_for_never_changes() -> None:
    bench = table_with("a")
    before = bench.segment()

    with pytest.raises(Conflict, match="another definition"):
        bench.versions.apply_version_edits([edit_of(2)], schema="other")
    with pytest.raises(Conflict, match="another definition"):
        bench.versions.apply_version_edits([edit_of(2)], spec="other")

    assert bench.segment() == before
    assert bench.versions.schema_json(0) == '{"schema-id":0}'


@pytest.mark.parametrize("change", [HeadChange(schema_id=9), HeadChange(spec_id=9)])
def test_a_schema_or_spec_that_is_not_there_cannot_become_current(change: HeadChange) -> None:
    bench = table_with("a")
    before = bench.segment()

    with pytest.raises(NotFound, match="9"):
        bench.versions.apply_version_edits([edit_of(2)], change)

    assert bench.segment() == before


def test_a_damaged_schema_is_corruption() -> None:
    bench = table_with("a")
    bench.store.transact(lambda session: session.put("schema/0000000000", b"\xff"))

    with pytest.raises(Corruption, match="schema 0"):
        bench.versions.schema_json(0)


# Reading.


@pytest.mark.parametrize("number", [-1, 0, 4, 10**6])
def test_a_version_that_is_not_there_says_which_are(number: int) -> None:
    bench = table_with("a", "b")

    with pytest.raises(NotFound, match="Use a version from 1 to 3"):
        bench.versions.version(number)


def test_every_retained_version_reads_the_same_in_any_process() -> None:
    bench = table_with("a", "b", "c")
    bench.replace_file("a", "d")
    wanted = {number: bench.versions.version(number) for number in range(1, 6)}

    bench.checkpoint_and_collect()
    bench.replace_file("d", "e")

    other = bench.another().versions
    assert {number: other.version(number) for number in range(1, 6)} == wanted


def test_the_newest_versions_come_first_and_can_be_limited() -> None:
    bench = table_with("a", "b", "c")

    numbers = [version.number for version in bench.versions.list_versions(limit=2)]

    assert numbers == [4, 3]
    assert len(bench.versions.list_versions(limit=100)) == 4


def test_an_expired_version_is_gone_also_for_a_process_that_remembers_it() -> None:
    bench = table_with("a", "b")
    assert bench.versions.version(2).number == 2

    bench.another().expire()

    with pytest.raises(NotFound, match="version 2"):
        bench.versions.version(2)


def test_a_session_does_not_see_versions_that_were_committed_later() -> None:
    bench = table_with("a")
    session = bench.store.read()
    bench.commit("b")

    with pytest.raises(NotFound):
        bench.versions.version_in(session, 3)


def test_a_version_that_was_staged_and_lost_is_never_read() -> None:
    bench = table_with("a")
    other = bench.another()
    mine, theirs = edit_of(2, "mine"), edit_of(2, "theirs")
    change = HeadChange(application=("app", 1))

    def commit_twice(session: WriteSession) -> None:
        # What a group does: the second transaction reads the Version that the first has staged.
        for run in runs:
            run(session)

    runs: list[Callable[[WriteSession], object]] = []
    transact = bench.store.transact
    bench.store.transact = runs.append  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(AttributeError):
            bench.versions.apply_version_edits([mine], change)
    bench.store.transact = transact  # type: ignore[method-assign]
    before_the_slot_is_decided(bench, lambda: other.versions.apply_version_edits([theirs]))

    with pytest.raises(Conflict):
        transact(commit_twice)

    assert bench.versions.snapshot_latest() == other.versions.snapshot_latest()
    assert path_of("theirs") in bench.versions.snapshot_latest().version.files


def test_a_commit_in_the_same_transaction_as_an_expiry_reads_what_the_expiry_staged() -> None:
    bench = table_with("a", "b")
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    runs: list[Callable[[WriteSession], object]] = []
    transact = bench.store.transact
    bench.store.transact = runs.append  # type: ignore[assignment]
    bench.garbage.apply_gc_plan(plan)
    with pytest.raises(AttributeError):
        TableVersions(bench.store, clock=bench.clock).apply_version_edits([edit_of(3, "c")])
    bench.store.transact = transact  # type: ignore[method-assign]

    transact(lambda session: [run(session) for run in runs])

    assert files_of(bench.versions.version(4)) == [path_of("a"), path_of("b"), path_of("c")]


def test_a_missing_edit_is_never_passed_over() -> None:
    bench = table_with("a", "b")
    bench.store.transact(lambda session: session.delete(version_key(2)))

    with pytest.raises(NotFound):
        bench.another().versions.snapshot_latest()


def test_an_edit_of_another_version_cannot_follow() -> None:
    version = apply_edit(None, edit_of(0))

    with pytest.raises(Corruption, match="cannot follow"):
        apply_edit(version, edit_of(2))
    with pytest.raises(Corruption, match="marks rows"):
        apply_edit(version, edit_of(1, vectors={"a": vector_ref("1", marked=1)}))


def test_facts_of_a_commit_are_kept() -> None:
    bench = new_table()
    said = VersionFacts(
        operation=Operation.APPEND,
        timestamp_ms=1,
        schema_id=0,
        spec_id=0,
        summary={"added-rows": "10"},
    )

    bench.versions.apply_version_edits([replace(edit_of(1, "a"), facts=said)])

    found = bench.another().versions.snapshot_latest().version.facts
    assert found == replace(said, timestamp_ms=bench.clock.now_ms(), table_uuid=UUID)
    assert bench.versions.store.log.paths.prefix == PREFIX


@pytest.mark.parametrize("path", ["../t2/data/x", "/data/x", "data/../wal/x", "data//x"])
def test_an_edit_that_names_a_file_elsewhere_is_not_read_for_its_names(path: str) -> None:
    bench = table_with("a")
    manifest = decode_mrub(encode_edit(edit_of(2, "b")), path="here")
    manifest.data_files[0].path = path
    head = bench.versions.head()

    def run(session: WriteSession) -> None:
        session.put(version_key(3), encode_mrub(manifest))
        session.put(HEAD_KEY, replace(head, current_version=3).encode())

    bench.store.transact(run)
    session = bench.store.read()

    with pytest.raises(Corruption) as caught:
        bench.versions.edit_message_in(session, 3)
    assert caught.value.path is not None
    assert version_key(3) in caught.value.path
    with pytest.raises(Corruption):
        bench.expire()


def test_the_paths_that_edits_touched_are_told_unless_they_expired() -> None:
    bench = table_with("a", "b")
    bench.replace_file("a", "c")
    session = bench.store.read()

    assert bench.versions.touched_in(session, after=4, until=4) == []
    assert bench.versions.touched_in(session, after=2, until=4) == [
        path_of("b"),
        path_of("a"),
        path_of("c"),
    ]
    bench.expire()
    assert bench.versions.touched_in(bench.store.read(), after=2, until=4) is None
