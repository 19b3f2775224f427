"""Settlement: makes the catalog say what the tables' version stores say.

No transaction spans two stores. A change that concerns both has four steps. It takes effect with
step 2, even if the process dies afterwards:

1. announce      catalog         `announced/<table id>/<operation>`; a new table also gets its name
2. commit        version store   Version 1, a new schema, or the mark that the table is dropped
3. settle        catalog         names and copies follow the version store
4. withdraw      catalog         the announcement is removed

Opening the catalog settles all announced tables, and opening a table settles that one. Settling
compares both stores and may be repeated:

    the catalog has      the version store is     settling
    a name               empty                    begins the table: the name was its promise
    a name               dropped                  removes the name
    an older copy        live                     brings the copy up to date
    no name              dropped, to be purged    deletes the files, then all history but the head;
                                                  nothing while a reader's lease is in force
    anything else                                 does nothing

CATALOG-T1  A name is never lost before its table is marked dropped.
CATALOG-T2  An announcement of another process stays for ten minutes: until then its change may
            still be under way. One of a purge stays until the files are gone.
CATALOG-T3  Opening never deletes files, which may take long: dropping and `recover` do.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from neve.catalog.catalog_entries import Announcement
from neve.catalog.known_properties import retention_of, with_retention
from neve.catalog.lake_stores import LakeStores
from neve.catalog.stored_table import StoredTable, TableState
from neve.catalog.table_meta import TableMeta
from neve.errors import Corruption, NeveError, NotFound, OutcomeUnknown
from neve.manifest.table_head import TableHead

logger = logging.getLogger(__name__)


class Settled(StrEnum):
    """What settling a table did."""

    NOTHING = "nothing"
    BEGUN = "begun"
    UPDATED = "updated"
    REMOVED = "removed"
    UNPURGED = "unpurged"
    """Dropped, but its files still exist; readers' leases may keep them."""
    PURGED = "purged"


_SETTLED_FOR_GOOD: Final = frozenset(Settled) - {Settled.UNPURGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a recovery checked and did; tables by id."""

    outcomes: Mapping[str, Settled] = field(default_factory=dict)
    failures: Mapping[str, NeveError] = field(default_factory=dict)
    """Tables that could not be settled, and why; the others were."""

    def with_outcome(self, outcome: Settled) -> tuple[str, ...]:
        """Return the tables with one outcome."""
        return tuple(table_id for table_id, found in self.outcomes.items() if found is outcome)


class Settlement:
    """Brings the two stores of a lake's tables together."""

    def __init__(self, stores: LakeStores) -> None:
        self._stores = stores
        self._entries = stores.entries

    def settle(self, table_id: str, *, purge: bool) -> Settled:
        """Settle one table; raises Corruption when its stores belong to different tables.

        `purge` also deletes the files of a table that was dropped with them.
        """
        stored = self._stores.stored_table(table_id)
        # The head first: a name that is missing afterwards was dropped, not lost.
        head = stored.find_head()
        meta = self._entries.find_meta(table_id)
        if head is None:
            return self._begin(stored, meta)
        if meta is not None:
            refuse_stranger(meta, head, path=stored.paths.manifest)
        if head.dropped:
            return self._remove(stored, is_named=meta is not None, purge=purge)
        return Settled.NOTHING if meta is None else self._update(stored, meta)

    @contextmanager
    def after_commit(self, announcement: Announcement) -> Iterator[None]:
        """Settle a table after a commit inside the block, and withdraw the announcement.

        A failure to settle does not undo the commit: the announcement stays, and the next opening
        of the catalog settles the table.
        """
        with self.withdrawn_on_failure(announcement):
            yield
        try:
            self.settle_own(announcement)
        except NeveError as error:
            logger.warning("left unsettled table=%s cause=%s", announcement.table_id, error)

    @contextmanager
    def withdrawn_on_failure(self, announcement: Announcement) -> Iterator[None]:
        """Withdraw an announcement when its change certainly did not happen."""
        try:
            yield
        except OutcomeUnknown:
            raise
        except NeveError:
            self.withdraw_if_possible(announcement)
            raise

    def withdraw_if_possible(self, announcement: Announcement) -> None:
        """Withdraw an announcement; if that fails, it stays and does no harm."""
        try:
            self._entries.withdraw(announcement)
        except NeveError as error:
            logger.warning("left announced table=%s cause=%s", announcement.table_id, error)

    def settle_own(self, announcement: Announcement) -> Settled:
        """Settle a table after a commit; withdraw the announcement once it is settled for good."""
        outcome = self.settle(announcement.table_id, purge=True)
        if outcome in _SETTLED_FOR_GOOD:
            self._entries.withdraw(announcement)
        return outcome

    def settle_announced(self) -> RecoveryReport:
        """Settle every table with an announced change; skips damaged ones."""
        return self._settle_all(self._announced(), purge=False)

    def recover(self) -> RecoveryReport:
        """Settle every table, and finish interrupted purges."""
        named = set(self._entries.state().tables.values())
        return self._settle_all(named | self._announced(), purge=True)

    def update_copy(self, state: TableState) -> TableMeta:
        """Update the catalog's copy of a table's definition to a state, and return it."""
        return self._entries.change_meta(state.head.table_id, lambda meta: up_to_date(meta, state))

    def _announced(self) -> set[str]:
        return {each.table_id for each in self._entries.announcements()}

    def _settle_all(self, table_ids: set[str], *, purge: bool) -> RecoveryReport:
        outcomes: dict[str, Settled] = {}
        failures: dict[str, NeveError] = {}
        for table_id in sorted(table_ids):
            try:
                outcomes[table_id] = self.settle(table_id, purge=purge)
            except NeveError as error:
                failures[table_id] = error
                logger.warning("could not settle table=%s cause=%s", table_id, error)
            else:
                if outcomes[table_id] is not Settled.NOTHING:
                    logger.info("settled table=%s outcome=%s", table_id, outcomes[table_id])
        if outcomes:
            self._withdraw_old(outcomes)
        return RecoveryReport(outcomes=outcomes, failures=failures)

    def _withdraw_old(self, outcomes: Mapping[str, Settled]) -> None:
        now_ms = self._stores.clock.now_ms()
        for announcement in self._entries.announcements():
            is_settled = outcomes.get(announcement.table_id) in _SETTLED_FOR_GOOD
            if is_settled and not announcement.may_be_under_way(now_ms):
                self.withdraw_if_possible(announcement)

    def _begin(self, stored: StoredTable, meta: TableMeta | None) -> Settled:
        if meta is None:
            return Settled.NOTHING
        stored.begin(meta)
        return Settled.BEGUN

    def _remove(self, stored: StoredTable, *, is_named: bool, purge: bool) -> Settled:
        if is_named:
            self._entries.remove_table(stored.table_id)
        if stored.writer_state.is_to_be_purged():
            return Settled.PURGED if purge and stored.purge() else Settled.UNPURGED
        return Settled.REMOVED if is_named else Settled.NOTHING

    def _update(self, stored: StoredTable, meta: TableMeta) -> Settled:
        # Another process may drop the table at this moment; then it settles the table.
        with suppress(NotFound):
            state = stored.load()
            if up_to_date(meta, state) is not meta:
                self.update_copy(state)
                return Settled.UPDATED
        return Settled.NOTHING


def refuse_stranger(meta: TableMeta, head: TableHead, *, path: str) -> None:
    """Raise Corruption when a name leads to the version store of another table."""
    if head.table_uuid != meta.table_uuid:
        raise Corruption(
            f"the version store of table {meta.name!a} belongs to another table",
            path=path,
            hint="Restore catalog and version stores in manifest/ from one copy",
        )


def up_to_date(meta: TableMeta, state: TableState) -> TableMeta:
    """Return a definition whose copied parts are those of a table's state.

    A state older than the copy changes nothing, and neither does one that only has more Versions:
    busy tables do not write to the catalog.
    """
    head = state.head
    if head.current_version < meta.as_of_version or _is_like(meta, state):
        return meta
    return replace(
        meta,
        properties=with_retention(meta.properties, head.retention),
        schemas=tuple(state.schemas[number] for number in sorted(state.schemas)),
        schema_version=head.schema_id,
        specs=tuple(state.specs[number] for number in sorted(state.specs)),
        spec_id=head.spec_id,
        sort_order=head.sort_order,
        retention=head.retention,
        as_of_version=head.current_version,
    )


def _is_like(meta: TableMeta, state: TableState) -> bool:
    """Whether the copied parts match the state; old schemas may be missing for lack of room."""
    head = state.head
    return (
        meta.schema == state.schema
        and meta.spec == state.spec
        and len(meta.specs) == len(state.specs)
        and meta.sort_order == head.sort_order
        and meta.retention == retention_of(meta.properties) == head.retention
    )
