"""Every sync of a whole table left out in turn: power cuts of the table must show it.

A site is a place in the local store together with the kind of file it syncs, so that a sync which
matters for logs and not for data files counts twice.
"""

import sys
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final

from neve.storage.disk import Disk
from neve.storage.table_paths import TEMPORARY_PREFIX
from neve.testing.disk_calls import CallKind, HookedDisk
from neve.testing.simulated_disk import SimulatedDisk
from tests.conftest import Record
from tests.crash.disk_trouble import MortalDisk
from tests.crash.engine_cuts import Cuts, WatchedDisk, left_to_die, live, new_world
from tests.crash.engine_steps import (
    Step,
    collect_garbage,
    compact_full,
    delete_many,
    expire,
    flush,
    killed_in_put,
    put,
    reopen,
    roll,
    upsert,
)
from tests.crash.engine_world import (
    ROOT,
)
from tests.gates import TORTURE

CHOICES: Final = 8
LIVES: Final = 40 if TORTURE else 8

# Index files are caches that are checked before use and made again, and a lease only has to outlive
# its reader, which a power cut ends as well: no row hangs on either.
HARMLESS: Final = frozenset({"index", "leases"})

# What a collector settles before it deletes segments matters after a writer that was killed between
# a rename and its sync: `test_manifest_power_cuts.py` has those.
SHOWN_ELSEWHERE: Final = frozenset(
    {"sync_directory of manifest in LocalTree.sync_directory < LocalStore.put_if_absent"}
)

LIFE: Final[tuple[Step, ...]] = (
    *(upsert, flush, put, delete_many, roll, upsert, flush, put, reopen),
    *(killed_in_put, upsert, killed_in_put, put),
    *(upsert, flush, compact_full, expire, collect_garbage, put, flush),
)


def file_kind(path: str) -> str:
    """Say what lies in a directory or file: the folder of the table or of its manifest."""
    parts = path.removeprefix(f"{ROOT}/").split("/")
    if parts[0] == "tables":
        if len(parts) == 3 and parts[2].startswith(TEMPORARY_PREFIX):
            return "mark"  # the only file beside the folders of a table
        return parts[2] if len(parts) > 2 else "tables"
    for place in ("segments", "checkpoints", "leases"):
        if place in parts:
            return place
    return parts[0]


class DiskWithoutSyncs(HookedDisk):
    """Another disk on which the syncs of one site succeed and do nothing."""

    def __init__(self, inner: Disk, left_out: str | None = None) -> None:
        super().__init__(inner)
        self.sites: set[str] = set()
        self._left_out = left_out

    def sync(self, handle: int) -> None:
        if self._is_kept(CallKind.SYNC, self._paths.get(handle, "")):
            super().sync(handle)

    def sync_directory(self, path: str) -> None:
        if self._is_kept(CallKind.SYNC_DIRECTORY, path):
            super().sync_directory(path)

    def _is_kept(self, kind: CallKind, path: str) -> bool:
        site = f"{kind.value} of {file_kind(path)} in {_place()}"
        self.sites.add(site)
        return site != self._left_out


def _place() -> str:
    """Name the function of the local store that is syncing now."""
    functions = []
    frame = sys._getframe(2)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").startswith("neve.storage.local_"):
            functions.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return " < ".join(functions[:2])


@cache
def sites_of(seed: int) -> frozenset[str]:
    disk = DiskWithoutSyncs(SimulatedDisk(seed))
    with left_to_die(new_world(MortalDisk(disk), seed)) as world:
        live(world, seed, steps=4, first=LIFE)
    return frozenset(disk.sites)


def is_noticed(site: str, seed: int) -> bool:
    """Whether some power cut of this life shows that the site's syncs were left out."""
    disk = SimulatedDisk(seed)
    watched = WatchedDisk(DiskWithoutSyncs(disk, left_out=site))
    with left_to_die(new_world(watched, seed)) as world:
        every = Random(f"{site}/{seed}").choice((5, 7, 11))
        cuts = Cuts(world, disk, seed=seed, choices=CHOICES, every=every)
        watched.look = cuts.look
        # What was left out may also be missed by the life itself, after a kill.
        with suppress(Exception):
            live(world, seed, steps=4, first=LIFE)
    return cuts.is_violated


def test_every_sync_of_a_table_that_is_left_out_is_noticed(scoreboard: Record) -> None:
    sites = sorted(
        site
        for site in frozenset().union(*(sites_of(seed) for seed in range(3)))
        if not HARMLESS.intersection(site.split()) and site not in SHOWN_ELSEWHERE
    )

    unnoticed = [
        site
        for site in sites
        if not any(is_noticed(site, seed) for seed in range(LIVES) if site in sites_of(seed))
    ]

    scoreboard(
        f"R6 table sync sites whose absence no test notices: {len(unnoticed)} of {len(sites)}"
    )
    assert not unnoticed
    assert len(sites) >= 10
