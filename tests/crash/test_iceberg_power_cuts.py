"""Publishing on a disk that loses power in any call: readers always find a whole Version.

A history of commits is run with the power cut in one call of the disk. Whatever the disk kept, the
document that the hint names shows the rows of one Version, and so does the newest document. Opening
the table and publishing leads to the table's own rows.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from types import FrameType
from typing import Final

from neve import TableOptions
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.errors import NotFound
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CHANGES, CallKind, DiskCall, HookedDisk
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.crash.disk_trouble import check_survivors
from tests.crash.engine_cuts import WatchedDisk, digest
from tests.crash.engine_world import forget
from tests.gates import Gate
from tests.interop.iceberg_walk import read_metadata, walk
from tests.unit.iceberg.published_lake import SCHEMA

ROOT: Final = "/srv/my lake"
OPTIONS: Final = TableOptions(background=False, log_bytes=32 << 10)
ON_DEMAND: Final = 3
"""Seed of the table that is published only when it is asked for, and before files are deleted."""
CHOICES_PER_CUT: Final = 3
# Far from every divisor of the number of calls, so that the cuts of a short gate are spread.
STRIDE: Final = 97

HARMLESS: Final[Mapping[str, str]] = {
    "directory in put_if_absent of write_manifest": (
        "the list that names a manifest is in the same directory, which is synced after it too"
    ),
    "directory in put_if_absent of move_hint": (
        "a table whose first hint is lost has none yet, and gets one by the next publish"
    ),
}
"""Syncs of publishing that no reader would miss, and why; the store makes them for everybody."""

Step = Callable[[Table], None]
Keys = list[tuple[int, str]]


def write(*keys: int, name: str) -> Step:
    def run(table: Table) -> None:
        table.upsert([{"id": key, "name": name} for key in keys])
        table.flush()

    return run


def delete(key: int) -> Step:
    def run(table: Table) -> None:
        table.delete(key)
        table.flush()

    return run


def add_column(table: Table) -> None:
    with table.evolve() as change:
        change.add_column("note", "string")


def compact(table: Table) -> None:
    table.compact(full=True)


def publish(table: Table) -> None:
    table.iceberg_metadata()


def roll_back(table: Table) -> None:
    table.rollback(4)


def expire(keep_last: int) -> Step:
    def run(table: Table) -> None:
        table.expire(keep_last=keep_last)
        table.collect_garbage(dry_run=False)

    return run


STEPS: Final[tuple[Step, ...]] = (
    write(1, 2, 3, name="a"),
    write(2, 4, name="b"),
    delete(1),
    lambda table: table.tag("kept", 3),
    compact,
    add_column,
    write(3, 5, name="c"),
    roll_back,
    expire(2),
    write(6, name="d"),
    publish,
    compact,
    expire(1),
    write(1, 8, name="d"),
)


def open_store(disk: Disk, *, seed: int) -> LocalStore:
    return LocalStore(ROOT, disk=disk, clock=SimulatedClock(), ids=SeededIds(seed))


def open_table(store: LocalStore, *, seed: int) -> Table:
    lake = Lake(store, clock=SimulatedClock(), ids=SeededIds(seed))
    options = replace(OPTIONS, iceberg_publish="demand") if seed == ON_DEMAND else OPTIONS
    if not lake.table_exists("shop.orders"):
        properties = {"format-version": "3" if seed % 2 else "2"}
        return lake.create_table(
            "shop.orders", SCHEMA, ["id"], properties=properties, options=options
        )
    return lake.table("shop.orders", options=options)


@contextmanager
def left_to_die() -> Iterator[list[Table]]:
    """Let nobody close tables that a dead process had open."""
    tables: list[Table] = []
    try:
        yield tables
    finally:
        for table in tables:
            forget(table)


def rows_of(table: Table) -> Keys:
    found = table.scan().to_arrow().to_pylist()
    return sorted((row["id"], row["name"]) for row in found)


@dataclass(frozen=True)
class UncutHistory:
    """Rows of every Version, and which calls of the disk change something."""

    rows: dict[int, Keys]
    changing_calls: tuple[int, ...]


@cache
def uncut_history(seed: int) -> UncutHistory:
    disk = SimulatedDisk()
    table = open_table(open_store(disk, seed=seed), seed=seed)
    opened_at = disk.calls
    rows = {table.version: rows_of(table)}
    for step in STEPS:
        step(table)
        for number in range(max(rows) + 1, table.version + 1):
            with table.at(number) as version:
                found = version.scan().to_arrow().to_pylist()
            rows[number] = sorted((row["id"], row["name"]) for row in found)
    forget(table)
    plain = SimulatedDisk()
    assert run(plain, seed=seed) == len(STEPS)
    changing = [
        number
        for number, call in enumerate(plain.log, start=1)
        if call.kind in CHANGES and number > opened_at
    ]
    return UncutHistory(rows, tuple(changing))


def run(disk: Disk, *, seed: int) -> int:
    """Take the steps until the power goes; gives how many were acknowledged."""
    done = 0
    with suppress(PowerCut), left_to_die() as tables:
        table = open_table(open_store(disk, seed=seed), seed=seed)
        tables.append(table)
        for step in STEPS:
            step(table)
            done += 1
    return done


def published_rows(store: LocalStore, location: str) -> tuple[int, Keys]:
    """Return the Version and the rows of a document; everything that it reaches must be there."""

    def fetch(at: str) -> bytes:
        return store.get(at.removeprefix(f"file://{ROOT}/")).payload

    metadata = read_metadata(location, fetch)
    version = int(metadata["properties"]["neve.version"])
    if not metadata["snapshots"]:
        return version, []
    walked = {each["snapshot-id"]: walk(metadata, each["snapshot-id"], fetch)
              for each in metadata["snapshots"]}  # fmt: skip
    rows = walked[metadata["current-snapshot-id"]].rows({1: "id", 2: "name"})
    return version, sorted((row["id"], row["name"]) for row in rows.to_pylist())


def check_published(store: LocalStore, rows: dict[int, Keys]) -> int:
    """Check what the hint names, and the newest document; returns the Version that the hint shows.

    It is 0 when there is no hint.
    """
    names = [info.path for info in store.list("tables/")]
    documents = {
        int(name.rpartition("/v")[2].split(".")[0]): name
        for name in names
        if name.endswith(".metadata.json")
    }
    hint = next((name for name in names if name.endswith("version-hint.text")), None)
    named = 0 if hint is None else int(store.get(hint).payload)
    shown = {0: 0}
    for number in {named, max(documents, default=0)} - {0}:
        version, found = published_rows(store, f"file://{ROOT}/{documents[number]}")
        assert found == rows[version], f"version {version}"
        shown[number] = version
    return shown[named]


def check_survivor(disk: SimulatedDisk, *, seed: int, history: UncutHistory) -> None:
    check_published(open_store(disk, seed=seed), history.rows)
    store = open_store(disk, seed=seed + 1_000)
    with suppress(NotFound), left_to_die() as tables:
        table = open_table(store, seed=seed + 2_000)
        tables.append(table)
        table.flush()
        assert check_published(store, {table.version: rows_of(table)}) == table.version
        write(7, name="e")(table)
        assert check_published(store, {table.version: rows_of(table)}) == table.version


def test_what_is_published_is_a_committed_version_whenever_the_power_goes(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 power cuts in commit and publish", aim=300, full=20_000)

    for seed in gate.seeds():
        history = uncut_history(seed % 2)
        calls = history.changing_calls
        cut_at = calls[seed * STRIDE % len(calls)]
        disk = SimulatedDisk().power_cut_at(cut_at)
        done = run(disk, seed=seed % 2)
        assert done < len(STEPS)

        def check(
            survivor: SimulatedDisk, _choice: int, seed: int = seed, history: UncutHistory = history
        ) -> None:
            check_survivor(survivor, seed=seed % 2, history=history)

        check_survivors(gate, disk, check, seed=seed, cut_at=cut_at, choices=CHOICES_PER_CUT)

    scoreboard(gate.line())


def test_an_uncut_history_is_published_in_both_formats() -> None:
    for seed in (0, 1):
        history = uncut_history(seed)

        assert history.rows[max(history.rows)][-1] == (8, "d")
        assert len(history.changing_calls) > 500


# Syncs of publishing

# Before these calls a reader may find something else than before the one of them that came last.
TURNS: Final = frozenset({CallKind.CREATE_FILE, CallKind.LINK, CallKind.RENAME, CallKind.REMOVE})
# Between a new hint and its sync, a few draws decide which of the names came to the disk.
HINT_DRAWS: Final = 6
SEEDS: Final = (1, ON_DEMAND, 0)


class DiskWithoutSyncs(HookedDisk):
    """Another disk on which the syncs of one place of publishing succeed and do nothing."""

    def __init__(self, inner: Disk, left_out: str | None = None) -> None:
        super().__init__(inner)
        self.sites: set[str] = set()
        self._left_out = left_out

    def sync(self, handle: int) -> None:
        if self._is_kept("file"):
            super().sync(handle)

    def sync_directory(self, path: str) -> None:
        if self._is_kept("directory"):
            super().sync_directory(path)

    def _is_kept(self, what: str) -> bool:
        site = _publishing_site(what)
        if site is not None:
            self.sites.add(site)
        return site is None or site != self._left_out


def _publishing_site(what: str) -> str | None:
    """Name the place that is syncing now; None when it is not one of publishing."""
    writer, call = None, ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith("neve.storage.local_"):
            call = name
        elif module in {"neve.iceberg.metadata_folder", "neve.iceberg.delete_files"}:
            writer = name  # the outermost one says what is written
        frame = frame.f_back
    return None if writer is None else f"{what} in {call} of {writer}"


class CutPublishing(WatchedDisk):
    """A disk whose power may go before any change to files that are, or were, published."""

    def __init__(
        self, inner: DiskWithoutSyncs, disk: SimulatedDisk, history: UncutHistory, *, seed: int
    ) -> None:
        super().__init__(inner)
        self.is_violated = False
        self._disk = disk
        self._history = history
        self._seed = seed
        self._seen: set[bytes] = set()

    def before(self, call: DiskCall) -> None:
        super().before(call)
        is_read = "/tables/" in call.target and "/wal/" not in call.target
        is_hint = call.kind is CallKind.SYNC_DIRECTORY and call.target.endswith("/metadata")
        if not is_hint and not (is_read and call.kind in TURNS):
            return
        kinds = [Survival.RANDOM] * HINT_DRAWS if is_hint else Survival
        for draw, survival in enumerate(kinds):
            survivor = self._disk.after_power_cut(
                Random(f"{call.target}/{draw}"), survival=survival
            )
            found = digest(survivor)
            if found not in self._seen:
                self._seen.add(found)
                if not self._is_whole(survivor):
                    self.is_violated = True
                    raise PowerCut(call)

    def _is_whole(self, survivor: SimulatedDisk) -> bool:
        try:
            check_published(open_store(survivor, seed=self._seed), self._history.rows)
        except Exception:  # noqa: BLE001 - whatever a reader stumbles over, it is no whole Version
            return False
        return True


def is_noticed(site: str | None, seed: int) -> bool:
    """Whether readers are shown something else than a whole Version when the power goes."""
    disk = SimulatedDisk(seed)
    watched = CutPublishing(
        DiskWithoutSyncs(disk, left_out=site), disk, uncut_history(seed), seed=seed
    )
    run(watched, seed=seed)
    return watched.is_violated


@cache
def publishing_sites(seed: int) -> frozenset[str]:
    disk = DiskWithoutSyncs(SimulatedDisk(seed))
    run(disk, seed=seed)
    return frozenset(disk.sites)


def test_every_sync_of_publishing_that_is_left_out_is_noticed(scoreboard: Record) -> None:
    every = frozenset().union(*(publishing_sites(seed) for seed in SEEDS))
    sites = sorted(every - HARMLESS.keys())

    unnoticed = [
        site
        for site in sites
        if not any(is_noticed(site, seed) for seed in SEEDS if site in publishing_sites(seed))
    ]

    scoreboard(
        f"R6 publishing sync sites whose absence no test notices: {len(unnoticed)} of {len(sites)}"
    )
    assert not unnoticed
    assert len(sites) >= 9
    assert every >= HARMLESS.keys()
    assert not any(is_noticed(None, seed) for seed in SEEDS)
