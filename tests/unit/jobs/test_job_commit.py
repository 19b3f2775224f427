"""Jobs beside the live writer commit once, whole, and in the order of their commits."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import cast

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.jobs.commit import BulkCommitter
from neve.jobs.run import BulkWork, JobIdentity
from neve.manifest.commit import TableCommitter
from neve.model.data_file import PartitionValue
from neve.storage.memory_store import MemoryStore
from neve.testing.clean_reader import CleanReader
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, level_counts
from tests.unit.jobs.bulk_jobs import Jobs


def a_row(number: int, v: int, text: str | None = "t") -> dict[str, object]:
    return {"id": number, "v": v, "text": text}


def clean_rows(table: neve.Table) -> dict[int, int]:
    """Read the current Version as a stranger does; fails when a key has two live rows."""
    stored = table._open.stored
    version = stored.versions.snapshot_latest().version
    rows = CleanReader(stored.objects, stored.paths.root, ["id"]).rows(version)
    return {cast("int", row["id"]): cast("int", row["v"]) for row in rows.values()}


def data_files(table: neve.Table) -> set[str]:
    stored = table._open.stored
    root = f"{stored.paths.root}/"
    folders = ("data", "deletes", "index")
    return {
        info.path.removeprefix(root)
        for folder in folders
        for info in stored.objects.list(f"{root}{folder}/")
    }


def test_a_job_commits_files_and_superseded_rows_as_one_version() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(number, 0) for number in range(10)])
        before = table.flush()
        outcome = Jobs(table._open.engine.parts).upsert(
            [a_row(number, 1) for number in range(5, 15)]
        )
        assert outcome.version == before + 1
        assert (outcome.rows_written, outcome.rows_superseded, outcome.files) == (10, 5, 2)
        assert not outcome.was_already_done
        assert clean_rows(table) == {number: int(number >= 5) for number in range(15)}
        table.refresh()
        assert table.scan().count() == 15
        assert table.get(7) == a_row(7, 1)


def test_rows_that_the_live_writer_has_not_flushed_come_after_a_job() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.put(a_row(1, 1))
        Jobs(table._open.engine.parts).upsert([a_row(1, 2), a_row(2, 2)])
        table.refresh()
        assert table.get(1) == a_row(1, 1)
        table.flush()
        assert clean_rows(table) == {1: 1, 2: 2}


def test_a_job_supersedes_what_others_committed_while_it_worked() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(number, 0) for number in range(6)])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(number, 9) for number in (1, 3, 7, 8)])
        table.upsert([a_row(3, 5), a_row(7, 5)])
        table.delete(1)
        table.flush()
        OtherCommitter(table).compact()
        outcome = jobs.committer.commit(run, work)
        assert clean_rows(table) == {0: 0, 1: 9, 2: 0, 3: 9, 4: 0, 5: 0, 7: 9, 8: 9}
        assert outcome.rows_superseded == 2


def test_a_delete_takes_rows_that_came_while_it_worked() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(1, 0), a_row(2, 0)])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.deleted(run, [1, 5])
        table.put(a_row(5, 0))
        table.flush()
        outcome = jobs.committer.commit(run, work)
        assert clean_rows(table) == {2: 0}
        assert (outcome.rows_written, outcome.rows_superseded) == (0, 2)


def test_a_delete_of_missing_keys_makes_no_version_until_somebody_writes_them() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        assert jobs.delete([1, 2]).version == 1
        run = jobs.committer.begin(JobIdentity(job_id="again"))
        work = jobs.deleted(run, [1, 2])
        table.put(a_row(1, 0))
        table.flush()
        assert jobs.committer.commit(run, work).version == 3
        assert clean_rows(table) == {}


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (JobIdentity(job_id="nightly"), JobIdentity(job_id="nightly")),
        (JobIdentity(application=("orders", 7)), JobIdentity(application=("orders", 7))),
    ],
)
def test_a_job_that_is_repeated_commits_nothing_and_leaves_no_file(
    first: JobIdentity, again: JobIdentity
) -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        done = jobs.upsert([a_row(1, 1)], job_id=first.job_id, application=first.application)
        files = data_files(table)
        found = jobs.committer.find_committed(again)
        assert found is not None
        assert found.was_already_done
        assert found.version == done.version
        # A second run that began before the first one ended.
        run = jobs.committer.begin(again)
        outcome = jobs.committer.commit(run, jobs.written(run, [a_row(1, 2)]))
        assert outcome.was_already_done
        assert outcome.version == done.version
        assert clean_rows(table) == {1: 1}
        assert data_files(table) == files


def test_a_batch_before_the_last_is_refused_and_leaves_no_file() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin(JobIdentity(application=("orders", 6)))
        work = jobs.written(run, [a_row(1, 2)])
        before = data_files(table)
        jobs.upsert([a_row(1, 1)], application=("orders", 7))
        files = data_files(table) - before
        with pytest.raises(neve.InvalidArgument, match="batch 6 of 'orders' is older than"):
            jobs.committer.commit(run, work)
        assert clean_rows(table) == {1: 1}
        assert data_files(table) == files


def test_a_run_that_is_given_up_after_its_commit_keeps_its_files() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        jobs.committer.commit(run, jobs.written(run, [a_row(1, 1)]))
        files = data_files(table)
        # Spark aborts a write whose commit it did not see return.
        jobs.committer.give_up(run)
        assert data_files(table) == files
        assert clean_rows(table) == {1: 1}


def test_a_commit_that_is_interrupted_when_it_is_decided_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(1, 1)])

        def interrupt(_committer: TableCommitter) -> bool:
            raise KeyboardInterrupt

        monkeypatch.setattr(TableCommitter, "checkpoint_once", interrupt)
        with pytest.raises(KeyboardInterrupt):
            jobs.committer.commit(run, work)
        monkeypatch.undo()
        assert clean_rows(table) == {1: 1}


def test_of_two_jobs_that_write_the_first_rows_of_a_table_one_is_void() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        first, second = jobs.committer.begin(), jobs.committer.begin()
        void = jobs.written(second, [a_row(1, 3)])
        made = data_files(table)
        work = jobs.written(first, [a_row(1, 1), a_row(2, 2)])
        assert jobs.committer.commit(first, work, is_first=True).version == 2
        assert 0 not in level_counts(table)
        kept = data_files(table) - made
        with pytest.raises(neve.Conflict, match="version 2 has rows"):
            jobs.committer.commit(second, void, is_first=True)
        assert table.version == 2
        assert clean_rows(table) == {1: 1, 2: 2}
        assert data_files(table) == kept


def test_the_first_rows_of_a_table_may_follow_rows_that_are_gone() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(1, 1)])
        jobs.upsert([a_row(1, 7), a_row(2, 7)])
        jobs.delete([1, 2])
        assert jobs.committer.commit(run, work, is_first=True).rows_written == 1
        assert clean_rows(table) == {1: 1}


def test_an_empty_job_is_remembered_too() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin(JobIdentity(application=("orders", 3)))
        assert jobs.committer.commit(run, BulkWork()).version == 1
        found = jobs.committer.find_committed(JobIdentity(application=("orders", 3)))
        assert found is not None
        assert found.was_already_done


def test_a_sweep_leaves_the_files_of_a_run_alone_until_it_gives_up() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(1, 1)])
        made = data_files(table)
        assert len(made) == 1
        table.collect_garbage(dry_run=False)
        assert data_files(table) == made
        assert jobs.committer.commit(run, work).rows_written == 1
        assert table.refresh().scan().count() == 1


def test_files_of_a_run_that_died_are_garbage_once_its_deadline_has_passed() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin(deadline_seconds=60)
        work = jobs.written(run, [a_row(1, 1)])
        clock.advance(61)
        table.collect_garbage(dry_run=False)
        assert data_files(table) == set()
        with pytest.raises(neve.Fenced, match="intent"):
            jobs.committer.commit(run, work)
        assert clean_rows(table) == {}


def test_a_run_that_gives_up_leaves_nothing() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        jobs.written(run, [a_row(1, 1)])
        jobs.committer.give_up(run)
        assert data_files(table) == set()
        assert not list(jobs.parts.writer_state.intents_in(jobs.parts.versions.store.read()))
        assert table.version == 1


def test_files_that_a_task_left_behind_when_it_was_tried_again_go_with_the_commit() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        jobs.written(run, [a_row(1, 1)])
        work = jobs.written(run, [a_row(1, 1)])
        jobs.committer.commit(run, work)
        assert {path for path in data_files(table) if path.startswith("data/")} == {
            file.path for file in work.files
        }


def test_first_rows_go_to_a_low_level_and_later_ones_of_the_same_keys_to_level_0() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        jobs.upsert([a_row(number, 0) for number in range(10)])
        jobs.upsert([a_row(number, 1) for number in range(5)])
        jobs.upsert([a_row(number, 1) for number in range(20, 25)])
        table.refresh()
        assert level_counts(table) == {0: 2, 2: 4}


def test_two_first_loads_at_once_both_commit() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        jobs = Jobs(table._open.engine.parts)
        runs = [jobs.committer.begin() for _ in range(2)]
        works = [
            jobs.written(run, [a_row(number, v) for number in range(6)])
            for v, run in enumerate(runs)
        ]
        for run, work in zip(runs, works, strict=True):
            jobs.committer.commit(run, work)
        assert clean_rows(table) == dict.fromkeys(range(6), 1)


def test_work_that_was_decided_by_rows_is_void_when_they_changed() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(number, 0) for number in range(4)])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        changes: list[Callable[[], int]] = [
            lambda: table.put(a_row(1, 5)),
            lambda: table.delete(1),
            lambda: table.put(a_row(9, 5)),
        ]
        for change in changes:
            run = jobs.committer.begin()
            work = jobs.written(run, [a_row(1, 9), a_row(9, 9)])
            before = clean_rows(table)
            change()
            table.flush()
            assert clean_rows(table) != before
            with pytest.raises(neve.Conflict, match="the job's decisions depend on"):
                jobs.committer.commit(run, work, decided=True)
            assert 9 not in clean_rows(table).values()


def test_keys_that_were_only_looked_at_make_decided_work_void_too() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(1, 0), a_row(2, 0)])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        looked_at = jobs.deleted(run, [2, 7]).deleted_keys
        work = replace(jobs.written(run, [a_row(1, 9)]), seen_keys=looked_at)
        table.put(a_row(7, 5))
        table.flush()
        with pytest.raises(neve.Conflict, match="the job's decisions depend on"):
            jobs.committer.commit(run, work, decided=True)
        assert clean_rows(table) == {1: 0, 2: 0, 7: 5}


def test_work_that_was_decided_by_rows_stands_when_others_changed_or_files_were_rewritten() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(number, 0) for number in range(4)])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(1, 9), a_row(9, 9)])
        table.upsert([a_row(2, 5), a_row(8, 5)])
        table.flush()
        OtherCommitter(table).compact()
        jobs.committer.commit(run, work, decided=True)
        assert clean_rows(table) == {0: 0, 1: 9, 2: 5, 3: 0, 8: 5, 9: 9}


def test_replaced_partitions_lose_everything_else_wherever_it_lies() -> None:
    columns: Mapping[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}
    with a_catalog() as lake:
        table = a_table(lake, columns=columns, partition_by=["text"])
        table.upsert([a_row(1, 0, "a"), a_row(2, 0, "a"), a_row(3, 0, "b"), a_row(4, 0, "c")])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(2, 9, "a"), a_row(3, 9, "a")])
        table.put(a_row(5, 0, "a"))
        table.flush()
        replaced = frozenset(file.partition for file in work.files)
        outcome = jobs.committer.commit(run, work, replaces=replaced)
        assert clean_rows(table) == {2: 9, 3: 9, 4: 0}
        assert outcome.rows_superseded == 4


def test_rows_of_a_partition_in_files_of_an_older_spec_are_replaced_too() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([a_row(number, number, "ab"[number % 2]) for number in range(6)])
        table.flush()
        with table.evolve() as change:
            change.set_partition_by(["text"])
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(10, 9, "a")])
        partitions: set[tuple[PartitionValue, ...]] = {file.partition for file in work.files}
        jobs.committer.commit(run, work, replaces=frozenset(partitions))
        assert clean_rows(table) == {1: 1, 3: 3, 5: 5, 10: 9}


_WIDENINGS: list[tuple[pa.DataType, str, float, float]] = [
    (pa.int32(), "long", 7, 8),
    (pa.float32(), "double", 0.5, math.nan),
    (pa.float32(), "double", math.nan, 0.5),
]


@pytest.mark.parametrize(("type_", "wider", "replaced", "other"), _WIDENINGS)
def test_a_partition_is_replaced_whole_though_its_column_was_widened(
    type_: pa.DataType, wider: str, replaced: float, other: float
) -> None:
    columns: Mapping[str, pa.DataType] = {"id": pa.int64(), "p": type_}
    with a_catalog() as lake:
        table = a_table(lake, columns=columns, partition_by=["p"])
        table.upsert([{"id": 1, "p": replaced}, {"id": 2, "p": replaced}, {"id": 3, "p": other}])
        table.flush()
        with table.evolve() as change:
            change.widen_column("p", wider)
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [{"id": 9, "p": replaced}])
        partitions = frozenset(file.partition for file in work.files)
        jobs.committer.commit(run, work, replaces=partitions)
        table.refresh()
        assert table.scan(columns=["id"]).to_arrow().column("id").to_pylist() == [3, 9]


def test_rows_of_older_specs_that_have_no_partition_are_no_hindrance_to_replacing_others() -> None:
    columns: Mapping[str, pa.DataType] = {"id": pa.int64(), "v": pa.int32(), "text": pa.string()}
    with a_catalog() as lake:
        table = a_table(lake, columns=columns)
        table.upsert([a_row(1, -(2**31)), a_row(2, 7), a_row(3, 18), a_row(4, 3)])
        table.flush()
        with table.evolve() as change:
            change.set_partition_by(["truncate(10, v)"])
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        work = jobs.written(run, [a_row(9, 5)])
        partitions = frozenset(file.partition for file in work.files)
        jobs.committer.commit(run, work, replaces=partitions)
        assert clean_rows(table) == {1: -(2**31), 3: 18, 9: 5}


def test_first_rows_that_overlap_a_partition_of_before_its_column_was_widened_go_to_level_0() -> (
    None
):
    columns: Mapping[str, pa.DataType] = {"id": pa.int64(), "v": pa.int32(), "text": pa.string()}
    with a_catalog() as lake:
        table = a_table(lake, columns=columns, partition_by=["v"])
        table.upsert([a_row(1, 7), a_row(9, 7)])
        table.flush()
        with table.evolve() as change:
            change.widen_column("v", "long")
        Jobs(table._open.engine.parts).upsert([a_row(5, 7)])
        table.refresh()
        assert level_counts(table) == {0: 2}


def test_a_commit_is_published() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        outcome = Jobs(table._open.engine.parts).upsert([a_row(1, 1)])
        assert table.refresh().iceberg_metadata().endswith(f"v{outcome.version}.metadata.json")


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_of_jobs_flushes_and_compactions_agree_with_a_dict(seed: int) -> None:
    rng = Random(seed)
    objects = MemoryStore()
    partition_by = rng.choice([(), ("bucket(3, id)",), ("text",)])
    with Lake(objects, clock=SimulatedClock()) as lake:
        table = a_table(lake, partition_by=partition_by)
        model: dict[int, int] = {}
        jobs = Jobs(table._open.engine.parts)
        other = Jobs(table._open.engine.parts)
        other.committer = BulkCommitter(other.parts)
        for step in range(12):
            started = [
                (jobs if rng.random() < 0.5 else other, rng.random() < 0.3, drawn(rng, step))
                for _ in range(rng.randint(1, 3))
            ]
            runs = []
            for who, is_delete, rows in started:
                run = who.committer.begin()
                keys = [cast("int", row["id"]) for row in rows]
                work = who.deleted(run, keys) if is_delete else who.written(run, rows)
                runs.append((who, run, work, is_delete, rows))
                if rng.random() < 0.4:
                    live = drawn(rng, -step)
                    table.upsert(live)
                    table.flush()
                    model.update((cast("int", row["id"]), cast("int", row["v"])) for row in live)
                if rng.random() < 0.3:
                    OtherCommitter(table).compact()
            rng.shuffle(runs)
            for who, run, work, is_delete, rows in runs:
                who.committer.commit(run, work)
                for row in rows:
                    if is_delete:
                        model.pop(cast("int", row["id"]), None)
                    else:
                        model[cast("int", row["id"])] = cast("int", row["v"])
                assert clean_rows(table) == model
        table.refresh().verify()


def drawn(rng: Random, v: int) -> list[dict[str, object]]:
    numbers = rng.sample(range(30), rng.randint(1, 8))
    return [a_row(number, v, "abc"[rng.randrange(3)]) for number in numbers]


@pytest.mark.parametrize(("jobs_run", "is_held_back"), [(1, False), (3, True)])
def test_the_files_of_a_job_hold_writers_back_as_one_for_their_keys_do_not_overlap(
    jobs_run: int, is_held_back: bool
) -> None:
    options = neve.TableOptions(
        background=False, level0_files=2, level0_files_slow=2, level0_files_max=4
    )
    with a_catalog() as lake:
        table = a_table(lake, options=options)
        jobs = Jobs(table._open.engine.parts)
        jobs.upsert([a_row(number, 0) for number in range(20)])
        for _ in range(jobs_run):
            jobs.upsert([a_row(number, 1) for number in range(20)], tasks=10)
        table.put(a_row(30, 1))
        table.flush()
        # By hand, it is the writer that is held back who compacts.
        table.put(a_row(31, 1))
        assert (level_counts(table).get(0, 0) < 10 * jobs_run + 1) == is_held_back
