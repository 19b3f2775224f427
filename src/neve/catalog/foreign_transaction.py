"""ForeignTransactions: commits of another engine to several tables with keys, all or none.

1. Prepare: compare what each table gets with the table, and write its files. Nothing refers to
   them yet.
2. Reserve the next commit of each table, in the order of their ids, and compare again: from here
   on no one else changes a row, for some seconds.
3. Decide: put `joint/<id>` into the catalog's store, while the reservations last. It has all that
   is needed to do the rest again: the client's snapshots, whose files still exist, and the Versions
   that they were made from. Now the transaction is committed.
4. Commit each table, and delete the decision.

A process that dies before 3 leaves files for the sweep, and reservations that end by themselves.
One that dies after 3 leaves the decision: the next one that opens the lake for writing, or serves
a table of it, makes the commits that are missing (`finish`). A commit is known by the id of its
snapshot, so each is made once, whichever process makes it.

CATALOG-38  A transaction is committed if and only if its decision was put.
CATALOG-39  A decided commit is never refused. If its reservation ended before it was made, it comes
            after what others committed, and its rows replace theirs.

Readers see each table's commit when it is made: between two of them one table is newer.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from neve.catalog.guests import Guests
from neve.catalog.known_properties import APPEND
from neve.catalog.lake_stores import LakeStores
from neve.errors import Conflict, InvalidArgument, NeveError, NotFound, OutcomeUnknown
from neve.iceberg.foreign_snapshots import ReadSnapshot, read_snapshot
from neve.jobs.foreign_commit import AppendRule, ForeignCommit, PreparedCommit
from neve.manifest.table_head import RESERVATION_MS_MAX
from neve.model.schema_json import JsonObject
from neve.table.table_context import TableParts

logger = logging.getLogger(__name__)

_DECIDE_MS: Final = RESERVATION_MS_MAX // 2
"""How much of a reservation may have passed when the decision is put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPart:
    """What one table gets."""

    table_id: str
    base_version: int
    snapshots: tuple[JsonObject, ...]
    """As the client sent them."""

    def encode(self) -> str:
        """Return the part as a decision keeps it."""
        return json.dumps({"base": self.base_version, "snapshots": list(self.snapshots)})

    @classmethod
    def decode(cls, table_id: str, text: str) -> "ForeignPart":
        """Read a part of a decision."""
        members = json.loads(text)
        return cls(
            table_id=table_id,
            base_version=members["base"],
            snapshots=tuple(members["snapshots"]),
        )


class ForeignTransactions:
    """Transactions of other engines over the tables of one lake; safe for many threads."""

    def __init__(self, stores: LakeStores) -> None:
        self._stores = stores
        self._entries = stores.entries
        self._guests = Guests(stores)
        # Guarded by _lock: transactions that a thread of this process is about to finish.
        self._lock = Lock()
        self._under_way: set[str] = set()

    def foreign_commit(self, part: ForeignPart, *, staged: str | None = None) -> ForeignCommit:
        """Return the commit of one table, named by the client's last snapshot; raises NotFound."""
        last = part.snapshots[-1].get("snapshot-id")
        if not isinstance(last, int):
            raise InvalidArgument("a snapshot has no id", hint="Give it one that is a number")
        meta = self._entries.find_meta(part.table_id)
        if meta is None:
            raise NotFound("the table was dropped", path=part.table_id)
        stores = self._stores
        parts: TableParts = stores.stored_table(part.table_id).parts(
            meta.properties,
            recorder=stores.recorder_of(meta.name),
            listener=stores.listener,
            is_published=True,
        )
        return ForeignCommit(
            parts,
            job_id=f"iceberg-{last}",
            locate=self._guests.path_of,
            appends=AppendRule(meta.properties.get(APPEND, AppendRule.UPSERT)),
            staged=staged,
        )

    def read(self, part: ForeignPart, *, staged: str | None = None) -> tuple[ReadSnapshot, ...]:
        """Read the snapshots of a part, whose files are below the table; raises InvalidArgument."""
        root = self._stores.stored_table(part.table_id).paths.root
        places = (f"{root}/",) if staged is None else (f"{root}/", f"{staged}/")

        def fetch(location: str) -> bytes:
            path = self._guests.path_of(location)
            if path is None or not path.startswith(places):
                raise InvalidArgument(
                    "the commit names a file outside of the table",
                    path=location,
                    hint="Write files below the location that the catalog returned",
                )
            return self._guests.read(location)

        found = tuple(read_snapshot(each, fetch) for each in part.snapshots)
        for each in found:
            if each.operation == "replace":
                raise InvalidArgument(
                    "the commit rewrites files without changing rows",
                    hint="Leave that to neve: `neve compact`, or the live writer",
                )
        return found

    def commit(self, parts: Sequence[ForeignPart], check: Callable[[], object]) -> None:
        """Commit all parts or none; `check` raises Conflict if the client's bases have moved.

        Raises OutcomeUnknown when the transaction is decided and a table could not be reached:
        `finish` makes its commit later.
        """
        joint_id = self._stores.ids.uuid().hex
        decision = {part.table_id: part.encode() for part in parts}
        prepared: list[tuple[ForeignCommit, PreparedCommit]] = []
        with self._lock:
            self._under_way.add(joint_id)
        try:
            try:
                for part in sorted(parts, key=lambda each: each.table_id):
                    commit = self.foreign_commit(part)
                    changes = [each.changes for each in self.read(part)]
                    work = commit.prepare(changes, base_version=part.base_version)
                    prepared.append((commit, work))
                self._decide(joint_id, decision, prepared, check)
            except OutcomeUnknown:
                raise  # it may be decided: `finish` finds out
            except BaseException:
                for commit, work in prepared:
                    commit.give_up(work)
                raise
            for commit, work in prepared:
                try:
                    commit.commit_prepared(work)
                except NeveError as error:
                    # CATALOG-39: it is made again, out of the decision.
                    logger.warning("left a decided commit joint=%s cause=%s", joint_id, error)
            self._finish(joint_id, decision)
        finally:
            with self._lock:
                self._under_way.discard(joint_id)

    def _decide(
        self,
        joint_id: str,
        decision: dict[str, str],
        prepared: Sequence[tuple[ForeignCommit, PreparedCommit]],
        check: Callable[[], object],
    ) -> None:
        before_ms = self._stores.clock.now_ms() + _DECIDE_MS
        for commit, work in prepared:
            commit.reserve(work, milliseconds=RESERVATION_MS_MAX)
        check()
        if not self._entries.decide_joint(joint_id, decision, before_ms=before_ms):
            raise Conflict(
                "comparing the rows of the transaction took too long",
                hint="Try again, or commit the tables one by one",
            )

    def finish(self) -> None:
        """Make the commits of decided transactions that are missing.

        It looks at the catalog as this process read it last, which costs nothing without any. What
        cannot be made now is logged, and stays decided.
        """
        for joint_id, parts in self._entries.joint_decisions().items():
            with self._lock:
                if joint_id in self._under_way:
                    continue
            try:
                self._finish(joint_id, parts)
            except NeveError as error:
                logger.warning("left a decided commit joint=%s cause=%s", joint_id, error)
            else:
                logger.info("finished a transaction joint=%s tables=%d", joint_id, len(parts))

    def _finish(self, joint_id: str, parts: dict[str, str]) -> None:
        for table_id, text in parts.items():
            part = ForeignPart.decode(table_id, text)
            try:
                commit = self.foreign_commit(part)
                if commit.find_committed() is None:
                    changes = [each.changes for each in self.read(part)]
                    commit.commit(changes, base_version=part.base_version, is_decided=True)
            except NotFound:
                continue  # the table was dropped since
            except NeveError as error:
                raise OutcomeUnknown(
                    f"a transaction is committed, but a table does not have its rows yet: {error}",
                    path=table_id,
                    hint="Open the lake again: that makes the commits that are missing",
                ) from error
        self._entries.forget_joint(joint_id)
