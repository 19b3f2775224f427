"""The log under power cuts at every call, with every sync left out in turn, and bits flipped."""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from random import Random

from neve.errors import Corruption
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.testing.power_loss import Survival
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.replay import Replay
from tests.crash.log_history import (
    ROOT,
    History,
    Violation,
    check_survivor,
    find_logs,
    live,
    live_twice,
)
from tests.crash.sync_sites import DiskWithoutSite
from tests.gates import TORTURE, Gate
from tests.unit.wal.builders import log_path, logs_in, open_log, put

Record = Callable[[str], None]

CHOICES_PER_CUT = 20


def cut_life(seed: int, *, at: int) -> tuple[SimulatedDisk, History]:
    """Live two generations and lose power in call `at`."""
    disk = SimulatedDisk(seed).power_cut_at(at)
    history = History()
    with suppress(PowerCut):
        live_twice(disk, history, seed)
    return disk, history


def count_calls(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    live_twice(disk, History(), seed)
    return disk


def test_a_put_in_one_step_is_durable_with_everything_before_it() -> None:
    """Its write makes its own bytes durable, and no others."""
    for rotates in (False, True):
        disk = SimulatedDisk()
        options = LogOptions(sync=SyncPolicy.GROUP, segment_bytes=64 << 10, preallocate=False)
        log = open_log(LocalStore(ROOT, disk=disk), options=options)
        for number in range(4):
            if rotates and number % 2:
                log.rotate()
            assert log.append_put(b"%d" % number, b"value", 1, lambda _at, *_row: None)
            assert log.durable_through == number + 1
            for survival in Survival:
                survivor = disk.after_power_cut(Random(number), survival=survival)
                store = LocalStore(ROOT, disk=survivor)
                found = [logged.sequence for logged in Replay(store, find_logs(store))]
                assert found == list(range(1, number + 2)), survival


def test_a_power_cut_at_any_call_loses_nothing_that_was_acknowledged(scoreboard: Record) -> None:
    gate = Gate("R5 log power cuts: violations", aim=20_000, full=500_000)

    for seed in gate.seeds():
        for at in range(1, count_calls(seed).calls + 1):
            disk, history = cut_life(seed, at=at)
            for choice in range(CHOICES_PER_CUT):
                survivor = disk.after_power_cut(Random(f"{seed}-{at}-{choice}"))
                check_survivor(survivor, deepcopy(history), seed)
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


def test_a_power_cut_while_recovering_loses_nothing_either(scoreboard: Record) -> None:
    gate = Gate("R5 log power cuts in recovery: violations", aim=5_000, full=50_000)

    for seed in gate.seeds():
        rng = Random(seed)
        calls = count_calls(seed).calls
        disk, history = cut_life(seed, at=rng.randint(1, calls))
        found = disk.after_power_cut(rng)
        for at in range(1, 60):
            again = found.after_power_cut(rng).power_cut_at(at)
            later = deepcopy(history)
            with suppress(PowerCut):
                live(again, later, seed + 2, steps=4)
            check_survivor(again.after_power_cut(Random(at)), later, seed)
            gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


def is_noticed(seed: int, site: str) -> bool:
    """Whether some power cut in this life shows that the site's syncs were left out."""
    calls = count_calls(seed).calls
    for at in range(1, calls + 1):
        disk = SimulatedDisk(seed).power_cut_at(at)
        history = History()
        try:
            with suppress(PowerCut):
                live_twice(DiskWithoutSite(disk, left_out=site), history, seed)
            for choice in range(8):
                survivor = disk.after_power_cut(Random(f"{seed}-{at}-{choice}"))
                check_survivor(survivor, deepcopy(history), seed)
        except Violation:
            return True
    return False


def test_every_sync_left_out_is_noticed(scoreboard: Record) -> None:
    lives = range(500 if TORTURE else 24)
    sites: dict[str, list[int]] = {}
    for seed in lives:
        disk = DiskWithoutSite(SimulatedDisk(seed))
        live_twice(disk, History(), seed)
        for site in disk.sites:
            sites.setdefault(site, []).append(seed)

    unnoticed = [
        site for site, seeds in sorted(sites.items()) if not any(is_noticed(s, site) for s in seeds)
    ]

    scoreboard(f"R6 log sync sites whose absence no test notices: {len(unnoticed)} of {len(sites)}")
    assert not unnoticed


def log_bytes(disk: SimulatedDisk) -> list[bytes]:
    store = LocalStore(ROOT, disk=disk)
    return [store.get(log.path).payload for log in find_logs(store)]


def test_two_lives_from_one_seed_make_the_same_calls(scoreboard: Record) -> None:
    gate = Gate("R13 log seeds whose two runs differ", aim=20, full=500)

    for seed in gate.seeds():
        first, second = count_calls(seed), count_calls(seed)
        gate.cases += 1
        assert first.log == second.log
        assert log_bytes(first) == log_bytes(second) != []

    scoreboard(gate.line())


def flipped_logs(store: MemoryStore) -> tuple[int, bytes]:
    payload = store.get(log_path(1)).payload
    return len(payload) * 8, payload


def test_no_flipped_bit_of_a_closed_log_changes_what_is_replayed(scoreboard: Record) -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False))
    for index in range(12):
        log.append(put(f"key{index}", b"value" * (index % 4)))
    log.close()
    bits, payload = flipped_logs(store)
    expected = list(Replay(store, logs_in(store)))

    for bit in range(bits):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        store.put(log_path(1), bytes(damaged))
        with suppress(Corruption):
            assert list(Replay(store, logs_in(store))) == expected, f"bit {bit}"

    scoreboard(f"R11 log bit flips, closed in good order: silently wrong: 0 of {bits:,} (all)")


def test_a_flipped_bit_of_a_killed_writers_log_costs_at_most_its_last_group(
    scoreboard: Record,
) -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False))
    for index in range(8):
        log.append(put(f"key{index}", b"value" * (index % 4)))
    bits, payload = flipped_logs(store)
    expected = list(Replay(store, logs_in(store)))

    for bit in range(bits):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        store.put(log_path(1), bytes(damaged))
        with suppress(Corruption):
            assert list(Replay(store, logs_in(store))) in (expected, expected[:-1]), f"bit {bit}"

    scoreboard(f"R11 log bit flips, writer killed: silently wrong: 0 of {bits:,} (all)")
