"""LiveWriter: what files that are gone, busy tables and failing upkeep do to writes and flushes."""

from collections.abc import Callable, Iterator
from threading import Event

import pytest

import neve
from neve.catalog.lake import Lake
from neve.engine.flush import Flush, FlushTarget
from neve.engine.rewrite import Rewrite
from neve.engine.upkeep import Upkeep
from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.manifest.table_versions import Committed
from neve.memtable.memtable import Memtable
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, rows

WAIT_SECONDS = 30
ANY_AGE_MS = 1 << 62
ROW = {"id": 3, "v": 1, "text": "t"}


@pytest.fixture
def lake() -> Iterator[Lake]:
    with a_catalog() as catalog:
        yield catalog


def files_of(table: neve.Table) -> dict[str, bytes]:
    objects, root = table._open.stored.objects, table._open.stored.paths.root
    return {
        info.path: objects.get(info.path).payload
        for folder in ("data", "index")
        for info in objects.list(f"{root}/{folder}/")
    }


@pytest.mark.parametrize(
    "work",
    [lambda table: table.flush(), lambda table: table.compact(full=True)],
    ids=["flush", "compact"],
)
def test_a_file_that_is_gone_does_not_end_the_writer(
    lake: Lake, work: Callable[[neve.Table], int]
) -> None:
    table = a_table(lake)
    table.upsert(rows(0, 10))
    table.flush()
    kept = files_of(table)
    for path in kept:
        table._open.stored.objects.delete(path)
    table._open.engine.files.close()
    table.put(ROW)

    with pytest.raises(NotFound):
        work(table)
    table.put({**ROW, "id": 99})
    assert table.get(99) == {**ROW, "id": 99}

    for path, payload in kept.items():
        table._open.stored.objects.put(path, payload)
    work(table)
    assert table.scan().count() == 11
    table.verify()


def test_a_flush_whose_files_others_rewrote_and_collected_is_made_on_theirs(
    lake: Lake,
) -> None:
    table = a_table(lake)
    table.upsert(rows(0, 10))
    table.flush()
    shown = table._open.engine.current.view.version
    last = OtherCommitter(table).compact()
    table._open.engine.upkeep.expire(keep_last=1, older_than_ms=ANY_AGE_MS)
    assert table._open.engine.upkeep.collect().file_count > 0
    table._open.engine.files.close()
    assert table._open.engine.current.view.version == shown < last
    table.put(ROW)

    table.flush()

    assert table.get(3) == ROW
    assert table.scan().count() == 10
    table.verify()


def test_a_flush_whose_version_expired_under_it_is_made_on_the_newest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(lake)
    table.upsert(rows(0, 10))
    table.flush()
    run, runs = Flush.run, 0

    def overtaken(flush: Flush, memtable: Memtable, target: FlushTarget) -> Committed:
        nonlocal runs
        runs += 1
        if runs == 1:
            OtherCommitter(table).compact()
            table._open.engine.upkeep.expire(keep_last=1, older_than_ms=ANY_AGE_MS)
        return run(flush, memtable, target)

    monkeypatch.setattr(Flush, "run", overtaken)
    table.put(ROW)
    table.flush()

    assert runs == 2
    assert table.scan().count() == 10
    table.verify()


def test_a_compaction_is_not_in_vain_when_its_version_expires_meanwhile(lake: Lake) -> None:
    table = a_table(lake)
    table.upsert(rows(0, 10))
    table.flush()

    def overtake(_done: int, _total: int) -> None:
        table.put(ROW)
        table.flush()
        table.expire(keep_last=1)

    table.compact(full=True, progress=overtake)

    assert table.history()["operation"].to_pylist()[-1] == "REPLACE"
    assert table.get(3) == ROW
    assert table.scan().count() == 10
    table.verify()


def test_a_compaction_of_a_version_that_others_let_go_is_planned_anew(lake: Lake) -> None:
    table = a_table(lake)
    for number in range(4):
        table.upsert(rows(0, 10, v=number))
        table.flush()
    other = OtherCommitter(table)
    other.upsert([ROW])
    other.upsert([ROW])
    table._open.engine.upkeep.expire(keep_last=1, older_than_ms=ANY_AGE_MS)

    table.compact(full=True)

    assert table.get(3) == ROW
    table.verify()


@pytest.mark.parametrize("executor", ["spark", 3, None], ids=["a name", "a number", "nothing"])
def test_what_executes_no_plans_is_refused(lake: Lake, executor: object) -> None:
    table = a_table(lake)
    with pytest.raises(InvalidArgument, match="executor"):
        table.compact(executor)  # type: ignore[arg-type]


def test_a_flush_ends_with_what_was_written_before_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast others write: each flush here is followed by another full memtable."""
    table = a_table(lake)
    table.put(ROW)
    writer = table._open.engine.writer
    run = Flush.run
    rounds = 0

    def busy(flush: Flush, memtable: Memtable, target: FlushTarget) -> Committed:
        nonlocal rounds
        rounds += 1
        if rounds < 20:
            table.put({**ROW, "id": 100 + rounds})
            writer._buffer.roll()
        return run(flush, memtable, target)

    monkeypatch.setattr(Flush, "run", busy)
    table.flush()

    assert rounds == 1
    assert table.stats().memtable_rows == 1
    assert table.scan().count() == 2


def test_upkeep_that_fails_is_shown_and_stops_no_writer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, flush_on = Event(), Event()

    def fails(_upkeep: Upkeep) -> bool:
        failed.set()
        raise Unavailable("the garbage of this table cannot be listed")

    monkeypatch.setattr(Upkeep, "tend_once", fails)
    run = Flush.run

    def waits(flush: Flush, memtable: Memtable, target: FlushTarget) -> Committed:
        assert flush_on.wait(WAIT_SECONDS)
        return run(flush, memtable, target)

    monkeypatch.setattr(Flush, "run", waits)
    table = a_table(lake, options=neve.TableOptions(memtable_bytes=1 << 10, frozen_memtables=1))
    text = "x" * 2_000
    for number in range(2):
        table.put({"id": number, "v": 0, "text": text})
    assert failed.wait(WAIT_SECONDS)
    backlog = table._open.engine.writer.backlog
    while backlog.failure is None:
        assert failed.wait(WAIT_SECONDS)
    assert backlog.pressure.must_wait
    assert "garbage" in table.stats().failure

    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1
        if looked == 2:
            flush_on.set()

    backlog.hold_back(check=look, work_off=lambda: False)
    assert looked >= 2
    assert table.put({"id": 2, "v": 0, "text": text}) == 3


def test_a_compaction_whose_plans_stay_void_gives_up_after_ten_minutes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(lake)
    table.upsert(rows(0, 10))
    table.flush()
    began = table._open.engine.parts.clock.monotonic()
    monkeypatch.setattr(Rewrite, "run", lambda *_arguments: None)

    with pytest.raises(Unavailable, match="others kept changing the files"):
        table.compact(full=True)

    assert table._open.engine.parts.clock.monotonic() - began >= 600
