"""Each option of a table, shown by what it changes."""

import inspect
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, Literal

import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import Corruption, Fenced, InvalidArgument
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import FaultyStore, StoreCall
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.tables import a_catalog, a_table, level_counts, rows

BY_HAND = neve.TableOptions(background=False)
WAIT_SECONDS = 30
SHOWN = {
    "sync": "test_sync_decides_which_writes_wait_for_the_disk",
    "sync_interval_seconds": "test_sync_interval_seconds_decides_when_a_write_syncs",
    "linger_ms": "test_linger_ms_lets_writes_share_a_sync",
    "puts_in_flight": "test_puts_in_flight_lets_groups_overlap",
    "log": "test_log_keeps_the_log_out_of_the_bucket",
    "log_bytes": "test_log_bytes_decides_how_many_logs_there_are",
    "recovery": "test_recovery_decides_what_a_damaged_log_does",
    "memtable_bytes": "test_memtable_bytes_decides_when_rows_become_a_file",
    "frozen_memtables": "test_frozen_memtables_decides_when_writers_wait",
    "transaction_bytes": "test_transaction_bytes_decides_how_long_a_transaction_may_last",
    "flush_seconds": "test_flush_seconds_decides_when_old_rows_are_flushed",
    "flush_on_close": "test_flush_on_close_leaves_no_row_in_the_log",
    "background": "test_background_flushes_without_being_called",
    "level0_files": "test_level0_files_decides_when_compaction_begins",
    "level0_files_slow": "test_level0_files_slow_decides_when_writers_slow_down",
    "level0_files_max": "test_level0_files_max_decides_when_writers_wait",
    "level1_bytes": "test_level1_bytes_decides_when_rows_sink",
    "level_ratio": "test_level_ratio_decides_how_deep_rows_sink",
    "file_bytes": "test_file_bytes_decides_how_many_files_there_are",
    "dual_levels": "test_dual_levels_decides_which_files_keep_their_rows_ready",
    "row_index_bytes": "test_row_index_bytes_bounds_the_rows_that_are_made_ready",
    "garbage_ratio": "test_garbage_ratio_decides_when_deleted_rows_are_rewritten",
    "compaction_bytes": "test_compaction_bytes_bounds_one_compaction",
    "compaction_threads": "test_compaction_threads_decides_how_many_plans_one_step_takes",
    "compaction_task_rows": "test_compaction_task_rows_decides_how_far_a_plan_is_cut",
    "cache_bytes": "test_cache_bytes_bounds_what_is_kept",
    "lease_seconds": "test_lease_seconds_bounds_a_forgotten_reader",
    "iceberg_publish": "test_iceberg_publish_decides_when_metadata_is_written",
}


class CountingStore(MemoryStore):
    """Counts the syncs of append files."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0

    def create(self, path: str, *, preallocate_bytes: int = 0) -> object:  # type: ignore[override]
        file = super().create(path, preallocate_bytes=preallocate_bytes)
        store, sync = self, file.sync

        class Counted:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def sync(self) -> None:
                store.syncs += 1
                sync()

        return Counted()


def syncs_of(options: neve.TableOptions, seconds_between: float = 0.0) -> int:
    objects, clock = CountingStore(), SimulatedClock()
    with a_catalog(objects, clock) as lake:
        table = a_table(lake, options=options)
        table.put({"id": 0, "v": 0, "text": ""})
        before = objects.syncs
        for number in range(10):
            clock.advance(seconds_between)
            table.put({"id": number, "v": 0, "text": ""})
        return objects.syncs - before


def sunk(options: neve.TableOptions, batches: int = 8, size: int = 400) -> neve.Table:
    """Write batches of different keys, each flushed, and compact as the levels ask."""
    table = a_table(a_catalog(), options=replace(options, background=False))
    for number in range(batches):
        table.upsert(rows(number * size, (number + 1) * size, text=f"{number:0100}"))
        table.flush()
    table.compact()
    return table


def test_every_option_has_a_test_that_shows_it() -> None:
    assert set(SHOWN) == {field.name for field in fields(neve.TableOptions)}
    assert set(SHOWN.values()) <= set(globals())


def test_help_explains_every_option() -> None:
    told = inspect.getdoc(neve.TableOptions) or ""  # without indentation, as from Python 3.13 on
    explained = re.findall(r"^ {4}(\w+)  +[A-Z]", told, re.MULTILINE)

    assert explained == [field.name for field in fields(neve.TableOptions)]


def test_sync_decides_which_writes_wait_for_the_disk() -> None:
    assert syncs_of(replace(BY_HAND, sync="always")) == 10
    assert syncs_of(replace(BY_HAND, sync="group")) == 10
    assert syncs_of(replace(BY_HAND, sync="none")) == 0


def test_sync_interval_seconds_decides_when_a_write_syncs() -> None:
    interval = replace(BY_HAND, sync="interval", sync_interval_seconds=5.0)
    assert syncs_of(interval, seconds_between=1.0) == 2
    assert syncs_of(replace(interval, sync_interval_seconds=1.0), seconds_between=1.0) >= 9


def test_log_bytes_decides_how_many_logs_there_are() -> None:
    def logs(log_bytes: int) -> int:
        with a_catalog() as lake:
            table = a_table(lake, options=replace(BY_HAND, log_bytes=log_bytes))
            for number in range(20):
                table.put({"id": number, "v": 0, "text": "x" * 10_000})
            return len(list(table._open.stored.objects.list(f"{table._open.stored.paths.wal}/")))

    assert logs(65_536) > logs(1 << 20)


def test_recovery_decides_what_a_damaged_log_does() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        for number in range(4):
            # Of a damaged block of the log nothing is believed, so these take more than one each.
            text = "damage me" if number == 1 else ""
            table.put({"id": number, "v": 0, "text": text + "x" * 40_000})
        objects, wal = table._open.stored.objects, table._open.stored.paths.wal
        table.close()
        (log,) = [each.path for each in objects.list(f"{wal}/") if each.path.endswith(".wal")]
        objects.put(log, objects.get(log).payload.replace(b"damage me", b"damaged!!"))

        with pytest.raises(Corruption):
            lake.table("a.b", options=replace(BY_HAND, recovery="absolute"))
        with lake.table("a.b", options=replace(BY_HAND, recovery="skip_corrupt")) as open_table:
            found = set(open_table.scan().to_arrow()["id"].to_pylist())
        assert {0, 3} <= found
        assert 1 not in found


def test_memtable_bytes_decides_when_rows_become_a_file() -> None:
    def frozen(memtable_bytes: int) -> int:
        with a_catalog() as lake:
            table = a_table(lake, options=replace(BY_HAND, memtable_bytes=memtable_bytes))
            for number in range(50):
                table.put({"id": number, "v": 0, "text": "x" * 100})
            return table.stats().memtable_count + table.files().num_rows

    assert frozen(4_096) > 1
    assert frozen(1 << 20) == 1


def test_transaction_bytes_decides_how_long_a_transaction_may_last() -> None:
    def is_refused(transaction_bytes: int) -> bool:
        with a_catalog() as catalog:
            options = replace(BY_HAND, transaction_bytes=transaction_bytes)
            table = a_table(catalog, options=options)
            tx = table.transaction()
            tx.put({"id": 1_000, "v": 1, "text": ""})
            table.upsert(rows(0, 100))
            table.flush()
            try:
                tx.commit()
            except neve.Conflict:
                return True
            return False

    assert [is_refused(1_000), is_refused(1 << 20)] == [True, False]


def test_frozen_memtables_decides_when_writers_wait() -> None:
    def flushed(frozen_memtables: int) -> int:
        options = replace(BY_HAND, memtable_bytes=2_048, frozen_memtables=frozen_memtables)
        with a_catalog() as lake:
            table = a_table(lake, options=options)
            for number in range(40):
                table.put({"id": number, "v": 0, "text": "x" * 100})
            return table.files().num_rows

    assert flushed(100) == 0
    assert flushed(1) > 0


def test_background_flushes_without_being_called() -> None:
    def files(*, background: bool) -> int:
        options = neve.TableOptions(
            background=background, memtable_bytes=2_048, frozen_memtables=100
        )
        with neve.open("memory://background") as lake:
            name = f"a.t{background}"
            table = lake.create_table(name, rows(0, 1).schema, ["id"], options=options)
            flushed = threading.Event()
            for number in range(200):
                table.put({"id": number, "v": 0, "text": "x" * 100})
            if background:
                for _ in range(1_000):
                    if table.files().num_rows:
                        break
                    flushed.wait(0.01)
            return table.files().num_rows

    assert files(background=True) > 0
    assert files(background=False) == 0


def test_flush_seconds_decides_when_old_rows_are_flushed() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as lake:
        table = a_table(lake, options=replace(BY_HAND, flush_seconds=60))
        writer = table._open.engine.writer
        table.put({"id": 1, "v": 0, "text": ""})
        memtables = []
        for _ in range(3):
            writer.flush_due_once()
            memtables.append(len(table._open.engine.current.view.memtables))
            clock.advance(29)

        assert memtables == [1, 1, 2]
        writer.flush_due_once()
        assert len(table._open.engine.current.view.memtables) == 2


def test_flush_on_close_leaves_no_row_in_the_log() -> None:
    for on_close in (False, True):
        with a_catalog() as lake:
            table = a_table(lake, options=replace(BY_HAND, flush_on_close=on_close))
            table.put({"id": 1, "v": 0, "text": ""})
            table.close()

            assert lake.load_table("a.b").version == 1 + on_close


def test_level0_files_decides_when_compaction_begins() -> None:
    assert level_counts(sunk(replace(BY_HAND, level0_files=4), batches=3)) == {0: 3}
    assert 0 not in level_counts(sunk(replace(BY_HAND, level0_files=2), batches=3))


def test_level0_files_slow_decides_when_writers_slow_down() -> None:
    def pressure(slow: int) -> str:
        options = replace(BY_HAND, level0_files=2, level0_files_slow=slow, level0_files_max=9)
        with a_catalog() as lake:
            table = a_table(lake, options=options)
            for number in range(4):
                table.put({"id": number, "v": 0, "text": ""})
                table.flush()
            return table.stats().pressure

    assert "4 young files" in pressure(3)
    assert pressure(5) == ""


def test_level0_files_max_decides_when_writers_wait() -> None:
    def level0(most: int) -> int:
        options = replace(BY_HAND, level0_files=2, level0_files_slow=2, level0_files_max=most)
        with a_catalog() as lake:
            table = a_table(lake, options=options)
            for number in range(6):
                table.upsert(rows(number, number + 1))
                table.flush()
            return level_counts(table).get(0, 0)

    assert level0(100) == 6
    assert level0(3) < 6


def test_level1_bytes_decides_when_rows_sink() -> None:
    small = replace(BY_HAND, level0_files=1, level0_files_slow=1, file_bytes=4_096)
    assert set(level_counts(sunk(replace(small, level1_bytes=1 << 30)))) == {1}
    assert max(level_counts(sunk(replace(small, level1_bytes=16_384)))) > 1


def test_level_ratio_decides_how_deep_rows_sink() -> None:
    small = replace(
        BY_HAND, level0_files=1, level0_files_slow=1, file_bytes=4_096, level1_bytes=8_192
    )
    deep = max(level_counts(sunk(replace(small, level_ratio=2), batches=16)))
    flat = max(level_counts(sunk(replace(small, level_ratio=100), batches=16)))
    assert deep > flat


def test_file_bytes_decides_how_many_files_there_are() -> None:
    assert level_counts(sunk(replace(BY_HAND, level0_files=1, level0_files_slow=1))) == {1: 1}
    small = replace(BY_HAND, level0_files=1, level0_files_slow=1, file_bytes=4_096)
    assert level_counts(sunk(small))[1] > 1


def test_dual_levels_decides_which_files_keep_their_rows_ready() -> None:
    def index_bytes(dual_levels: int) -> int:
        table = sunk(replace(BY_HAND, dual_levels=dual_levels), batches=1)
        objects, paths = table._open.stored.objects, table._open.stored.paths
        return sum(info.size for info in objects.list(f"{paths.root}/index/"))

    assert index_bytes(2) > 10 * index_bytes(0)


def test_row_index_bytes_bounds_the_rows_that_are_made_ready() -> None:
    def index_bytes(row_index_bytes: int | None) -> int:
        options = replace(BY_HAND, cache_bytes=1, row_index_bytes=row_index_bytes)
        table = sunk(options, batches=2)
        writer = table._open.engine.writer
        for number in range(0, 800, 20):
            table.get(number)
        while writer.index_once():
            pass
        assert table.get(400) is not None
        return table.stats().index_bytes

    assert index_bytes(0) < 10_000 < index_bytes(1 << 20)
    # None: as much as the data files have, which are compressed.
    assert index_bytes(None) == index_bytes(0)


def test_garbage_ratio_decides_when_deleted_rows_are_rewritten() -> None:
    def garbage(ratio: float) -> int:
        table = sunk(replace(BY_HAND, garbage_ratio=ratio, level0_files=1, level0_files_slow=1), 1)
        table.delete_many(list(range(100)))
        table.flush()
        table.compact()
        return table.stats().deleted_count

    assert garbage(0.9) == 100
    assert garbage(0.1) == 0


def test_compaction_bytes_bounds_one_compaction() -> None:
    def rewritten(compaction_bytes: int) -> int:
        options = replace(
            BY_HAND,
            level0_files=4,
            level1_bytes=65_536,
            file_bytes=16_384,
            compaction_bytes=compaction_bytes,
        )
        table = a_table(a_catalog(), options=options)
        for number in range(8):
            table.upsert(rows(number * 400, (number + 1) * 400, text=f"{number:0100}"))
            table.flush()
        before = table.files().num_rows
        table._open.engine.writer.compact_once()
        kept = set(table.files()["level"].to_pylist())
        assert before == 8
        return level_counts(table).get(0, 0) if 0 in kept else 0

    assert rewritten(1 << 30) == 0
    assert rewritten(16_384) > 0


def test_cache_bytes_bounds_what_is_kept() -> None:
    def kept(cache_bytes: int) -> int:
        table = sunk(replace(BY_HAND, dual_levels=0, cache_bytes=cache_bytes), batches=4)
        for number in range(0, 1_600, 50):
            table.get(number)
        return table.stats().cache_bytes

    assert kept(1) < 10_000 < kept(1 << 30)


def test_lease_seconds_bounds_a_forgotten_reader() -> None:
    def ended(lease_seconds: float) -> bool:
        clock = SimulatedClock()
        with a_catalog(clock=clock) as lake:
            table = a_table(lake, options=replace(BY_HAND, lease_seconds=lease_seconds))
            table.upsert(rows(0, 10))
            table.flush()
            snapshot = table.snapshot()
            clock.advance(1_000)
            try:
                snapshot.get(1)
            except Fenced:
                return True
            return False

    assert ended(600.0)
    assert not ended(3_600.0)


def test_compaction_threads_decides_how_many_plans_one_step_takes() -> None:
    def files_left(compaction_threads: int) -> int:
        """Return the files of four partitions after one step."""
        options = neve.TableOptions(
            compaction_threads=compaction_threads,
            file_bytes=1_000,  # so small that plans are not put together
            level0_files=2,
            level0_files_slow=90,
            level0_files_max=99,
        )
        with a_catalog() as lake:
            table = a_table(lake, options=options, partition_by=["bucket(4, id)"])
            writer = table._open.engine.writer
            writer.backlog.stop()
            for _ in range(2):
                table.upsert(rows(0, 40))
                table.flush()
            before = table.files().num_rows
            assert writer.compact_once()
            table.refresh()
            assert table.scan().count() == 40
            return before - table.files().num_rows

    assert files_left(1) < files_left(4)


def test_compaction_task_rows_decides_how_far_a_plan_is_cut() -> None:
    def files_after(compaction_task_rows: int) -> int:
        options = replace(
            BY_HAND, compaction_task_rows=compaction_task_rows, file_bytes=8_000, dual_levels=0
        )
        with a_catalog() as lake:
            table = a_table(lake, options=options)
            for start in (0, 5_000):
                table.upsert(rows(start, start + 5_000, text="a text that is long enough"))
                table.flush()
            table.compact(full=True)
            assert table.scan().count() == 10_000
            return table.files().num_rows

    assert files_after(1_000_000) < files_after(1_000)


def test_iceberg_publish_decides_when_metadata_is_written() -> None:
    def written(mode: Literal["commit", "demand"]) -> bool:
        with a_catalog() as lake:
            table = a_table(lake, options=replace(BY_HAND, iceberg_publish=mode))
            table.upsert(rows(0, 10))
            table.flush()
            return any(table._open.stored.objects.list(f"{table._open.stored.paths.metadata}/"))

    assert written("commit")
    assert not written("demand")


def put_side_by_side(options: neve.TableOptions) -> tuple[int, int]:
    """Write from many threads into a bucket; return its requests, and the most at once."""
    under_way, most = 0, 0
    lock = Lock()

    def watch(call: StoreCall) -> None:
        nonlocal under_way, most
        if call.path.endswith(".slot"):
            with lock:
                under_way += 1
                most = max(most, under_way)
            Event().wait(0.02)
            with lock:
                under_way -= 1

    bucket = FaultyStore(MemoryStore(), before_call=watch)
    with Lake(bucket) as lake:
        table = a_table(lake, options=options)
        table.upsert(rows(0, 1))
        before = len(bucket.calls)
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda n: table.upsert(rows(n, n + 1)), range(1, 65)))
        assert table.scan().count() == 65
        return len(bucket.calls) - before, most


def test_linger_ms_lets_writes_share_a_sync() -> None:
    eager, _ = put_side_by_side(BY_HAND)
    lingering, _ = put_side_by_side(replace(BY_HAND, linger_ms=20))

    assert lingering < eager


@pytest.mark.parametrize("rules", [{}, {"order_by": "v"}, {"merge": {"v": "sum"}}], ids=str)
def test_puts_of_threads_share_syncs_whatever_the_rules_of_the_table(rules: dict[str, Any]) -> None:
    def watch(call: StoreCall) -> None:
        if call.path.endswith(".slot"):
            Event().wait(0.02)  # what a bucket takes, so that others can join

    bucket = FaultyStore(MemoryStore(), before_call=watch)
    with Lake(bucket) as lake:
        schema = {"id": int, "v": int}
        table = lake.create_table("a.b", schema, "id", options=BY_HAND, **rules)
        table.put({"id": 0, "v": 0})
        before = len(bucket.calls)
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda n: table.put({"id": n, "v": n}), range(1, 65)))
        assert table.scan().count() == 65
        assert len(bucket.calls) - before < 48


def test_puts_in_flight_lets_groups_overlap() -> None:
    assert put_side_by_side(BY_HAND)[1] == 1
    assert 1 < put_side_by_side(replace(BY_HAND, puts_in_flight=4))[1] <= 4


def test_log_keeps_the_log_out_of_the_bucket(tmp_path: Path) -> None:
    bucket = FaultyStore(MemoryStore())
    with Lake(bucket) as lake:
        table = a_table(lake, options=replace(BY_HAND, log=str(tmp_path)))
        table.upsert(rows(0, 10))

    assert not [call for call in bucket.calls if call.path.endswith(".slot")]
    assert list(tmp_path.rglob("*.wal"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger_ms", -1),
        ("linger_ms", "2"),
        ("linger_ms", 1e9),
        ("puts_in_flight", 0),
        ("puts_in_flight", 17),
        ("puts_in_flight", 2.0),
        ("iceberg_publish", "never"),
        ("sync", "sometimes"),
        ("recovery", "hope"),
        ("memtable_bytes", 10),
        ("frozen_memtables", 0),
        ("transaction_bytes", 0),
        ("cache_bytes", 0),
        ("compaction_threads", 0),
        ("compaction_task_rows", 0),
        ("level0_files", 0),
        ("level0_files_slow", 1),
        ("level0_files_max", 3),
        ("level_ratio", 0),
        ("file_bytes", 0),
        ("garbage_ratio", 2.0),
        ("log_bytes", 0),
        ("lease_seconds", 0.0),
        ("sync_interval_seconds", -1.0),
        ("compaction_bytes", 0),
        ("dual_levels", -1),
        ("level1_bytes", 0),
        ("memtable_bytes", "64 MiB"),
        ("frozen_memtables", None),
        ("level0_files_max", "24"),
        ("lease_seconds", "600"),
        ("background", "no"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        neve.TableOptions(**{name: value})  # type: ignore[arg-type]

    assert refused.value.hint
