"""Files and Versions say which logs their rows came from, and when they were committed."""

from itertools import pairwise
from pathlib import Path

import pytest

import neve
from neve.manifest import mrub_pb2
from neve.manifest.mrub import decode_mrub
from neve.manifest.table_head import state_key
from neve.model.data_file import DataFile, WalSegmentRef, with_origin_of
from neve.model.version import Version
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SimulatedClock
from neve.wal.replay import LogFile, Replay
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, rows
from tests.unit.jobs.bulk_jobs import Jobs

SMALL_LOGS = neve.TableOptions(background=False, log_bytes=32_768)
BY_HAND = neve.TableOptions(background=False)


def current(table: neve.Table) -> Version:
    return table._open.stored.versions.snapshot_latest().version


def files_of(table: neve.Table) -> list[DataFile]:
    return list(current(table).files.values())


def logged_rows(table: neve.Table) -> dict[str, tuple[int, int]]:
    """Read the logs themselves: the first and the last row of each, by its relative path."""
    stored = table._open.stored
    found = {}
    for info in stored.objects.list(f"{stored.paths.wal}/"):
        if not info.path.endswith(".wal"):
            continue
        log = LogFile(number=int(info.path[-10:-4]), path=info.path)
        spans = [(b.sequence, b.next_sequence - 1) for b in Replay(stored.objects, [log])]
        if spans:
            path = info.path.removeprefix(f"{stored.paths.root}/")
            found[path] = (int(spans[0][0]), spans[-1][1])
    return found


def test_a_flush_names_the_logs_its_rows_came_from_as_the_logs_themselves_do() -> None:
    with a_catalog() as lake:
        table = a_table(lake, options=SMALL_LOGS)
        for number in range(150):
            table.put({"id": number, "v": 0, "text": "x" * 500})
        logged = logged_rows(table)
        assert len(logged) > 2, "several logs are needed to tell anything"
        table.flush()
        (file,) = files_of(table)
        said = {each.file_id: (each.first_frame, each.last_frame) for each in file.wal_segments}
        assert said == logged
        assert current(table).facts.wal_segments == file.wal_segments
        numbers = [each.log_number for each in file.wal_segments]
        assert numbers == sorted(numbers)
        assert all(
            one.last_frame + 1 == two.first_frame for one, two in pairwise(file.wal_segments)
        )


def test_a_log_whose_rows_were_all_overwritten_brought_no_row_to_the_file() -> None:
    with a_catalog() as lake:
        table = a_table(lake, options=SMALL_LOGS)
        for _ in range(100):
            table.put({"id": 1, "v": 0, "text": "x" * 500})
        table.flush()
        (file,) = files_of(table)
        assert len(file.wal_segments) == 1
        assert file.wal_segments[0].first_frame == 100
        assert current(table).facts.wal_segments[0].first_frame == 1


def test_deletes_name_their_logs_in_the_version_alone() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert(rows(0, 10))
        table.flush()
        table.delete(3)
        table.flush()
        assert [(s.first_frame, s.last_frame) for s in current(table).facts.wal_segments] == [
            (11, 11)
        ]
        assert len(files_of(table)) == 1


def test_rows_that_a_dead_writer_logged_name_the_logs_of_its_epoch() -> None:
    objects = MemoryStore()
    with a_catalog(objects) as lake:
        table = a_table(lake, options=SMALL_LOGS)
        for number in range(100):
            table.put({"id": number, "v": 0, "text": "x" * 500})
        logged = logged_rows(table)
        left = MemoryStore()
        for info in objects.list(""):
            left.put(info.path, objects.get(info.path).payload)
    with a_catalog(left) as lake:
        again = lake.table("a.b", options=BY_HAND)
        again.put({"id": 100, "v": 0, "text": "new"})
        again.flush()
        (file,) = files_of(again)
        said = {each.file_id: (each.first_frame, each.last_frame) for each in file.wal_segments}
        assert said.items() > logged.items()
        assert file.wal_segments[-1].first_frame == file.wal_segments[-1].last_frame == 101
        assert file.wal_segments[-1].file_id.startswith("wal/")
        assert (
            file.wal_segments[0].file_id.split("/")[1]
            != file.wal_segments[-1].file_id.split("/")[1]
        ), "another writer has another epoch"


def test_rows_are_committed_when_the_version_that_brought_them_is() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake)
        times = []
        for start in (0, 10):
            clock.advance(60)
            table.upsert(rows(start, start + 10))
            table.flush()
            times.append(current(table).facts.timestamp_ms)
        assert times[0] < times[1]
        assert [(f.commit_ms_min, f.commit_ms_max) for f in files_of(table)] == [
            (times[0], times[0]),
            (times[1], times[1]),
        ]


def test_a_compaction_unites_what_its_inputs_say() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake)
        for start in (0, 10, 20):
            clock.advance(60)
            table.upsert(rows(start, start + 10))
            table.flush()
        before = files_of(table)
        clock.advance(60)
        table.compact(full=True)
        (after,) = files_of(table)
        assert after.commit_ms_min == before[0].commit_ms_min
        assert after.commit_ms_max == before[-1].commit_ms_max
        assert after.wal_segments == tuple(each for file in before for each in file.wal_segments)
        assert current(table).facts.wal_segments == (), "it committed nothing of the log"
        assert current(table).facts.timestamp_ms > after.commit_ms_max


def test_what_is_united_stays_short_however_many_flushes_there_were() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        for start in range(0, 400, 10):
            table.upsert(rows(start, start + 10))
            table.flush()
        table.compact(full=True)
        (file,) = files_of(table)
        assert len(file.wal_segments) == 8
        assert file.wal_segments[0].first_frame == 1
        assert file.wal_segments[-1].last_frame == 400
        assert all(
            one.last_frame + 1 == two.first_frame for one, two in pairwise(file.wal_segments)
        )


def test_files_of_jobs_came_from_no_log_but_were_committed_at_a_time() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake)
        clock.advance(60)
        Jobs(table._open.engine.parts).upsert([{"id": 1, "v": 0, "text": "t"}])
        (file,) = files_of(table)
        assert file.wal_segments == ()
        assert file.commit_ms_min == file.commit_ms_max == current(table).facts.timestamp_ms
        assert current(table).facts.wal_segments == ()


def test_a_flush_that_is_rebased_keeps_its_logs_and_takes_the_time_of_its_commit() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake)
        table.upsert(rows(0, 10))
        clock.advance(60)
        OtherCommitter(table).upsert([{"id": 5, "v": 9, "text": "job"}])
        clock.advance(60)
        table.flush()
        version = current(table)
        file = list(version.files.values())[-1]
        assert version.number == 3
        assert [(s.first_frame, s.last_frame) for s in file.wal_segments] == [(1, 10)]
        assert version.facts.wal_segments == file.wal_segments
        assert file.commit_ms_min == version.facts.timestamp_ms


def test_partial_writes_name_their_logs_too() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert(rows(0, 10))
        table.flush()
        table.upsert([{"id": 3, "v": 7}], columns=["id", "v"])
        table.flush()
        file = files_of(table)[-1]
        assert [(s.first_frame, s.last_frame) for s in file.wal_segments] == [(11, 11)]


def test_a_rollback_brings_files_back_with_what_they_said() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake)
        clock.advance(60)
        table.upsert(rows(0, 10))
        number = table.flush()
        before = files_of(table)
        table.compact(full=True)
        clock.advance(60)
        table.rollback(number)
        after = files_of(table)
        assert [(f.commit_ms_max, f.wal_segments) for f in after] == [
            (f.commit_ms_max, f.wal_segments) for f in before
        ]
        assert current(table).facts.wal_segments == ()


def test_checkpoints_and_another_process_say_the_same() -> None:
    objects = MemoryStore()
    with a_catalog(objects) as lake:
        table = a_table(lake)
        for start in range(0, 30, 10):
            table.upsert(rows(start, start + 10))
            table.flush()
        expected = current(table)
        store = table._open.stored.versions.store
        store.checkpoint()
        table.close()
    with a_catalog(objects) as lake:
        stored = lake.table("a.b", read_only=True)._open.stored
        found = stored.versions.snapshot_latest().version
        assert found == expected
        frame = stored.versions.store.read().state.get(state_key(found.number))
        assert frame is not None
        manifest = decode_mrub(frame, path="state")
        assert manifest.form == mrub_pb2.FORM_STATE
        assert manifest.table_uuid == stored.versions.head().table_uuid
        assert manifest.last_column_id == 3
        assert [ref.wal_segments[0].first_frame for ref in manifest.data_files] == [1, 11, 21]


def test_the_last_column_id_follows_the_schema() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        assert current(table).facts.last_column_id == 3
        with table.evolve() as change:
            change.add_column("more", "long")
        assert current(table).facts.last_column_id == 4
        with table.evolve() as change:
            change.drop_column("more")
        assert current(table).facts.last_column_id == 4, "an id is never given out again"
        table.put({"id": 1, "v": 1, "text": "a"})
        table.flush()
        assert current(table).facts.last_column_id == 4
        assert current(table).facts.table_uuid == table._open.stored.versions.head().table_uuid


def test_files_shows_where_rows_came_from(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.b", rows(0, 1).schema, ["id"])
        table.upsert(rows(0, 10))
        table.flush()
        (row,) = table.files().to_pylist()
        assert row["committed_min"] == row["committed_max"]
        assert row["committed_min"] == table.history()["timestamp"][-1].as_py()
        (segment,) = row["wal_segments"]
        assert (segment["first_frame"], segment["last_frame"]) == (1, 10)
        assert segment["file_id"].endswith(f"{segment['log_number']:06}.wal")


@pytest.mark.parametrize("unknown", [0, 1], ids=["the first", "the second"])
def test_one_input_of_unknown_time_makes_the_time_of_a_rewrite_unknown(unknown: int) -> None:
    from_log = WalSegmentRef(log_number=1, file_id="wal/1/000001.wal", first_frame=1, last_frame=9)
    inputs = [
        DataFile(
            path=f"data/{number}.parquet",
            file_bytes=1,
            row_count=1,
            level=0,
            key_min=b"a",
            key_max=b"b",
            commit_ms_min=0 if number == unknown else 5,
            commit_ms_max=0 if number == unknown else 6,
            wal_segments=(from_log,),
        )
        for number in (0, 1)
    ]
    (output,) = with_origin_of(inputs[:1], inputs)
    assert (output.commit_ms_min, output.commit_ms_max) == (0, 0)
    assert output.wal_segments == (from_log,)
