"""Ctrl-C during an append: nobody hangs, nothing acknowledged is lost, and little is poisoned."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from neve.errors import Closed, Unavailable
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.wal.append_outcome import PendingAppend, cause_of
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.write_ahead_log import WriteAheadLog
from tests.interruption import interrupted
from tests.unit.wal.builders import LogStore, open_log, put, replay

MakeStore = Callable[[str], LogStore]


@pytest.fixture(params=["memory", "local"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    def make(name: str) -> LogStore:
        return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / name))

    return make


def append_elsewhere(log: WriteAheadLog, key: str) -> int | None:
    """Append in another thread; None when the log is poisoned. Fails when it hangs."""
    sequences: list[int | None] = []

    def append() -> None:
        try:
            sequences.append(log.append(put(key)))
        except Closed:
            sequences.append(None)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert sequences, "the append hangs"
    return sequences[0]


def append_whole(log: WriteAheadLog, key: str) -> int:
    return log.append(put(key))


def append_in_one_step(log: WriteAheadLog, key: str) -> int:
    return log.append_put(key.encode(), b"value", 1, lambda _at, _key, _value: None)


@pytest.mark.parametrize("append", [append_whole, append_in_one_step])
@pytest.mark.parametrize("sync", [SyncPolicy.GROUP, SyncPolicy.NONE])
def test_an_append_interrupted_anywhere_hangs_nobody_and_loses_nothing(
    make_store: MakeStore, append: Callable[[WriteAheadLog, str], int], sync: SyncPolicy
) -> None:
    options = LogOptions(sync=sync, segment_bytes=64 << 10, preallocate=False)
    place = 0
    usable = 0
    is_interrupted = True
    while is_interrupted:
        place += 1
        store = make_store(f"log-{place}")
        log = open_log(store, options=options)
        acknowledged = {log.append(put("before")): b"before"}
        is_interrupted = interrupted(partial(append, log, "interrupted"), place)
        sequence = append_elsewhere(log, "after")
        if sequence is not None:
            acknowledged[sequence] = b"after"
            usable += 1
        log.close()

        batches, _ = replay(store)
        found = {logged.sequence: logged.batch.changes[0].key for logged in batches}  # type: ignore[union-attr]
        assert acknowledged.items() <= found.items(), f"interrupted at place {place}"
        assert sorted(found) == list(range(1, len(found) + 1)), f"interrupted at place {place}"
    # What comes before the first byte is much of it, and the last round is not interrupted.
    assert usable > place // 3


def test_an_interrupt_before_the_first_byte_leaves_the_log_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    log = open_log(store)
    log.append(put("a"))

    def interrupt(_pieces: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log._active, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.append(put("b"))

    assert log.append(put("c")) == 2


def test_a_poisoned_log_names_an_interrupt_that_says_nothing() -> None:
    log = open_log(MemoryStore())

    def interrupt(_sequence: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.append(put("a"), apply=interrupt)

    with pytest.raises(Closed, match=r"the log failed \(KeyboardInterrupt\(\)\)"):
        log.append(put("b"))
    assert cause_of(OSError("no space")) == "no space"


def test_followers_of_a_leader_interrupted_before_it_wrote_are_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = open_log(MemoryStore())
    group = [PendingAppend(put("a"), None), PendingAppend(put("b"), None)]

    def interrupt(_payloads: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log._active, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log._commit_group(group)

    for work in [*group, PendingAppend(put("never begun"), None)]:
        with pytest.raises(Unavailable, match="nothing was written"):
            work.outcome()
    assert log.append(put("c")) == 1
