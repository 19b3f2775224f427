"""TableTransaction: reads of one moment and writes that become visible together, in one table.

    begin       the newest view is pinned, as of sequence S
    read        own writes ──► memtables as of S ──► files of the pinned Version
    write       checked and decided as in every write; in a memtable of its own once it is read
    commit      one record of the log, if no key of it was changed after S

Decisions of a write (which change wins, what a partial row is merged with) are made on what the
transaction reads. They hold when it is committed, because its keys have not changed since.

TX-1  First committer wins: a commit whose keys have changes above S is a Conflict, and leaves
      nothing behind. Serializable transactions also have the keys they read, and the ranges they
      scanned.
TX-2  The thread that commits the group checks, in the order of the log: against applied changes,
      and against the keys of batches that come before it and are not applied yet.
TX-3  Another process's commit counts once its Version is shown here. Then rows are compared: a
      compaction is not a change. A scanned range is in conflict with any of them.
TX-4  What can no longer be compared is a Conflict: more was written since S than is kept
      (`transaction_bytes`), or the definition of the table was changed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, cast

import pyarrow as pa

from neve.engine.background import end_forgotten
from neve.engine.conditional_writes import Narrowing, PartialWrites
from neve.engine.ruled_writes import RuledPath, path_of
from neve.engine.snapshot import CurrentView, rows_in_order
from neve.engine.table_engine import TableEngine
from neve.engine.write_path import (
    Decide,
    Decided,
    PreparedBatch,
    PreparedRow,
    PreparedWrite,
    WritePath,
)
from neve.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, SchemaMismatch
from neve.keys.arrays import key_objects
from neve.keys.columns import KeyArray
from neve.keys.ranges import KeyRange
from neve.memtable.memtable import Memtable, MemtableMark
from neve.model.display import shown
from neve.model.write_batch import SEQUENCE_MAX, UpsertRows
from neve.observability.metrics import TRANSACTION_CONFLICTS, TRANSACTIONS
from neve.read.filters import Filter
from neve.read.scan import Scan, ScanRequest
from neve.table.partial_merge import Places
from neve.table.table_context import TableContext
from neve.table.table_view import Row, TableView
from neve.wal.append_outcome import Unapplied
from neve.wal.batch_codec import BATCH_BYTES_MAX, EncodedChanges

BEGIN_AGAIN: Final = "Begin the transaction again: it reads the rows that the table has now"
_NAMED_KEYS: Final = 10
_LARGE: Final = 1_000


class Isolation(StrEnum):
    """What a transaction is protected from."""

    SNAPSHOT = "snapshot"
    """It reads one moment, and no other transaction has written its keys since."""
    SERIALIZABLE = "serializable"
    """Also, nothing that it read has changed: as if transactions ran one after another."""

    @classmethod
    def of(cls, asked: object) -> "Isolation":
        """Return it by its name; raises InvalidArgument."""
        try:
            return _ISOLATIONS[asked]
        except (KeyError, TypeError) as error:
            raise InvalidArgument(
                f"isolation {shown(asked)} is not known", hint=f"Use one of {', '.join(cls)}"
            ) from error


# Asked by every transaction: the call of an enum costs several times as much.
_ISOLATIONS: Final[Mapping[object, Isolation]] = {each.value: each for each in Isolation}


class Moment(NamedTuple):
    """A table at one moment, which a transaction can begin at later; keeps what conflicts need."""

    engine: TableEngine
    view: TableView
    sequence: int
    mark: MemtableMark
    since: int
    is_pinned: bool = False
    """Whether its rows in memory stay."""

    @classmethod
    def of(cls, engine: TableEngine) -> "Moment":
        """Begin to keep what changes from now on; `release` ends it."""
        current = engine.current
        since = current.sequence
        current.transactions.begin(since)
        return cls(engine, current.view, since, current.view.memtables[0].mark(), since)

    def newest(self) -> "Moment":
        """Return the newest moment instead; only one of them is released."""
        current = self.engine.current
        view = current.view
        mark = view.memtables[0].mark()
        return self._replace(view=view, sequence=current.sequence, mark=mark)

    def is_newest(self) -> bool:
        """Return whether nothing has moved since."""
        current = self.engine.current
        return current.view is self.view and current.sequence == self.sequence

    def pinned(self) -> "Moment | None":
        """Return it with its rows in memory kept; None when some are gone already."""
        if not self.view.pin_memory(self.sequence):
            return None
        return self._replace(is_pinned=True)

    def unpin(self) -> None:
        """End what `pinned` began."""
        self.view.unpin_memory(self.sequence)

    def release(self) -> None:
        """End what `of` and `pinned` began."""
        if self.is_pinned:
            self.unpin()
        self.engine.current.transactions.end(self.since)


class TableTransaction:
    """An open transaction of one table; for one thread at a time."""

    def __init__(
        self, engine: TableEngine, name: str, isolation: Isolation, moment: Moment | None = None
    ) -> None:
        """Begin, now or at an earlier moment; `name` is that of the table, for errors."""
        self.engine = engine
        """The table that it reads and writes."""
        self.is_open = False
        """Whether it has not ended; a write that failed half way ends it, too."""
        self._name = name
        is_serializable = isolation is Isolation.SERIALIZABLE
        current = engine.current
        # Before the newest view is taken: what is flushed in between is kept.
        self._since = current.sequence if moment is None else moment.since
        current.transactions.begin(self._since)
        try:
            if moment is None:
                self._mark = current.view.memtables[0].mark() if is_serializable else None
                view, sequence, self._writer_path = self._pin()
            else:
                self._mark = moment.mark
                view, sequence, self._writer_path = self._pin_at(moment)
        except BaseException:
            current.transactions.end(self._since)
            raise
        self._base = view
        self._sequence = sequence
        self.is_open = True
        self._lease = engine.leases.lease_of(view.version)
        self._now_ms = engine.parts.clock.now_ms() if view.expires else 0
        self._seen = view.as_of(self._now_ms)
        self._with_own: TableView | None = None
        self._path: WritePath | None = None
        self._writes: list[PreparedWrite] = []
        self._byte_count = 0
        self._written: set[bytes] = set()
        self._read: set[bytes] | None = set() if is_serializable else None
        self._ranges: list[KeyRange] = []
        self._checked = sequence

    def _pin(self) -> tuple[TableView, int, WritePath | None]:
        """Pin the newest view, and take the path that writes under its schema."""
        engine = self.engine
        while True:
            view, sequence = engine.pin_view()
            path = None if engine.is_read_only else engine.writer.path
            # A write of the next memtable is in the sequence, but not in the view. And the schema
            # may be changed right now.
            is_whole = engine.current.view.memtables[0] is view.memtables[0]
            if path is None or (is_whole and path.context is view.context):
                return view, sequence, path
            engine.unpin_view(view, sequence)

    def _pin_at(self, moment: Moment) -> tuple[TableView, int, WritePath | None]:
        """Pin the view of an earlier moment; raises Conflict when it is no longer readable."""
        engine, view, sequence = self.engine, moment.view, moment.sequence
        path = None if engine.is_read_only else engine.writer.path
        try:
            engine.leases.pin(view.version)
        except NotFound as error:
            raise self._conflict(f"version {view.version} has expired") from error
        if (path is None or path.context is view.context) and view.pin_memory(sequence):
            return view, sequence, path
        engine.leases.unpin(view.version)
        raise self._conflict("the table was changed so much that its rows are gone")

    # Facts

    @property
    def context(self) -> TableContext:
        """The schema of its rows, with their codecs."""
        return self._base.context

    @property
    def view(self) -> TableView:
        """What it reads: its own writes over the table as of its begin."""
        return self._stored().as_of(self._now_ms)

    def _stored(self) -> TableView:
        """Return its own writes over the table as of its begin, with rows that have expired.

        Made when first needed: most transactions read rows by key that they have not written.
        """
        if self._with_own is None:
            base, context = self._base, self._base.context
            own = Memtable(context.schema, context.codec, context.encoder, first_sequence=1)
            for write in self._writes:
                write.apply_to(own, own.last_sequence + 1)
            first, *older = base.memtables
            self._with_own = TableView(
                (own, first.as_of(self._sequence), *older),
                base.files,
                context,
                others_version=base.others_version,
            )
        return self._with_own

    @property
    def sequence(self) -> int:
        """Sequence number of the last write of others that it sees."""
        return self._sequence

    @property
    def has_writes(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._writes)

    @property
    def has_reads(self) -> bool:
        """Whether a commit depends on what it read."""
        return bool(self._read or self._ranges)

    # Reading

    def get(self, key: object) -> Row | None:
        """Return the row of a key, or None."""
        context = self._base.context
        try:
            encoded = context.encode_plain_key(key)
        except (SchemaMismatch, InvalidArgument):
            encoded = context.encode_key(key)
        if self._read is not None:
            self._read.add(encoded)
        if self._lease is not None:
            self._lease.check()
        try:
            if encoded in self._written:
                return self.view.get_at(encoded, SEQUENCE_MAX)
            return self._seen.get_at(encoded, self._sequence)
        except NotFound:
            with self.engine.lost.explained(self._base.version):
                raise

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys in the order asked; missing keys are absent, or rows of NULL."""
        view = self.view

        def find(wanted: KeyArray) -> tuple[pa.Table, Places]:
            if self._read is not None:
                self._read.update(key_objects(wanted))
            return view.get_many(wanted, SEQUENCE_MAX)

        if self._lease is not None:
            self._lease.check()
        with self.engine.lost.explained(view.version):
            return rows_in_order(keys, view, find, with_missing=with_missing)

    def scan(self, request: ScanRequest, check: Callable[[], None]) -> Scan:
        """Read many rows: those of its begin, and its own writes up to now."""
        version = self._base.version
        scan = Scan(
            self.view,
            request,
            sequence=SEQUENCE_MAX,
            check=check,
            pin=lambda: self.engine.pinned_run(version),
        )
        if self._read is not None:
            self._ranges.append(scan.key_range)
        return scan

    # Writing

    @property
    def path(self) -> WritePath:
        """What prepares its writes; raises InvalidArgument for a table that is only read."""
        if self._path is None:
            path = self._writer_path
            if path is None:
                path = self.engine.writer.path  # which is refused
            if isinstance(path, RuledPath):
                # Its changes are compared with what the transaction reads.
                current = CurrentView(self._stored(), SEQUENCE_MAX)
                path = path_of(path.context, path.spec, current, self.engine.files)
            self._path = path
        return self._path

    def put(self, row: object) -> None:
        """Write one row, replacing the row of its key."""
        write = self.path.put(row)  # type: ignore[arg-type]
        if isinstance(write, PreparedRow):
            self._add_one(write)
        else:
            self._add([write])

    def upsert(self, rows: object, columns: Sequence[str] | None = None) -> None:
        """Write many rows, all or none; with `columns` only these of them."""
        if columns is None:
            self._add(list(self.path.upsert(rows)))
            return
        way = Narrowing(self.path, columns)
        writes = PartialWrites(self._stored(), SEQUENCE_MAX, self._seen.cutoff)
        self._add([partial(writes.prepared, batch, way) for batch in list(way.bounded(rows))])

    def delete(self, key: object) -> None:
        """Delete the row of a key."""
        self._add([self.path.delete(key)])

    def delete_many(self, keys: object) -> None:
        """Delete the rows of many keys."""
        write = self.path.delete_many(keys)
        if write is not None:
            self._add([write])

    def delete_where(self, filter: Filter, check: Callable[[], None]) -> None:  # noqa: A002
        """Delete every row that it reads and that matches a filter."""
        if filter is None:
            raise InvalidArgument("no filter was given", hint='Pass "true" to delete all rows')
        names = list(self.context.encoder.names)
        self.delete_many(self.scan(ScanRequest(filter=filter, columns=names), check).to_arrow())

    def _add(self, writes: Iterable[PreparedWrite | Decide]) -> None:
        """Add the writes of one call, all or none of them."""
        count = len(self._writes)
        try:
            for write in writes:
                ready = write() if callable(write) else write
                if ready is not None:
                    self._add_one(ready)
        except BaseException:
            if len(self._writes) > count:
                self.close()  # what it has of this call cannot be taken back
            raise

    def _add_one(self, write: PreparedWrite) -> None:
        byte_count = self._byte_count + write.changes.byte_count
        if byte_count > BATCH_BYTES_MAX:
            raise LimitExceeded(
                f"the transaction writes more than {BATCH_BYTES_MAX:,} bytes",
                limit=BATCH_BYTES_MAX,
                actual=byte_count,
                hint="Commit it in several transactions",
            )
        if self._with_own is not None:
            own = self._with_own.memtables[0]
            write.apply_to(own, own.last_sequence + 1)
        self._byte_count = byte_count
        self._writes.append(write)
        self._written.update(_keys_of(write))

    # Ending

    def commit(self) -> int:
        """Make its writes durable and visible; return the last sequence number.

        Raises Conflict when another writer was first; then nothing of it is written.
        """
        engine = self.engine
        if not self._writes:
            self.close()
            return self._sequence
        recorder = engine.parts.recorder
        try:
            if len(self._written) > _LARGE and not self._ranges:
                self.check()  # here, and not while others wait
            sequence = engine.once_more(lambda: engine.writer.write(_Commit(self)))
        except Exception as error:
            # Not after an interrupt: another thread may be committing it right now.
            self.close()
            if isinstance(error, Conflict):
                recorder.add(TRANSACTION_CONFLICTS, 1)
            raise
        self.close()
        recorder.add(TRANSACTIONS, 1)
        assert sequence is not None
        return sequence

    def close(self) -> None:
        """Forget what was not committed; twice is not an error."""
        if self.is_open:
            self.is_open = False
            _release(self.engine, self._base, self._sequence, self._since)

    def __del__(self) -> None:
        if self.is_open:
            end_forgotten(partial(_release, self.engine, self._base, self._sequence, self._since))

    # Committing

    @property
    def byte_count(self) -> int:
        """Bytes that it adds to the log."""
        return self._byte_count

    def prepared(self) -> PreparedBatch:
        """Return all writes as one."""
        writes = self._writes

        def apply(memtable: Memtable, sequence: int) -> None:
            for write in writes:
                sequence = write.apply_to(memtable, sequence) + 1

        return PreparedBatch(self._changes(), apply, self._written)

    def _changes(self) -> EncodedChanges:
        pieces: list[bytes | memoryview] = []
        entry_count = row_count = 0
        for write in self._writes:
            changes = write.changes
            pieces += changes.pieces
            entry_count += changes.entry_count
            row_count += changes.row_count
        byte_count = self._byte_count
        schema = self._base.context.schema
        if schema.rules.order_by:
            # Alone, a delete and then an upsert of its keys would be replayed as a copy of rows
            # that others committed.
            no_rows = pa.RecordBatch.from_pylist([], schema=schema.arrow_schema)
            nothing = self.path.encoded([UpsertRows(no_rows)])
            pieces += nothing.pieces
            entry_count += nothing.entry_count
            byte_count += nothing.byte_count
        return EncodedChanges(tuple(pieces), entry_count, row_count, schema.schema_id, byte_count)

    def check_unapplied(self, unapplied: Unapplied) -> bool:
        """Raise Conflict for keys in batches that are not applied yet; False to ask again later."""
        since = self._sequence
        found = [key for key in unapplied.keys() & self._written if unapplied[key] > since]
        if self._read is not None:
            found += [key for key in unapplied.keys() & self._read if unapplied[key] > since]
            found += self._in_ranges(key for key in unapplied if unapplied[key] > since)
        if found:
            raise self._changed(found)
        return not self._ranges

    def check(self) -> None:
        """Raise Conflict when something that it depends on was changed since it began."""
        engine = self.engine
        current = engine.current
        reached, view = current.sequence, current.view
        if engine.writer.path is not self._writer_path:
            raise self._conflict("the definition was changed")
        if self._sequence < current.transactions.forgotten_through:
            raise self._conflict(
                "more was written than is kept to compare with",
                hint="Use shorter transactions, or raise the option transaction_bytes",
            )
        since = self._checked
        keys = self._written | self._read if self._read else self._written
        found: list[bytes] = []
        for each in (*view.memtables, *current.transactions.kept):
            if each.last_sequence > since:
                found += each.changed_after(keys, since)
                if self._ranges:
                    found += self._in_ranges(each.keys_after(self._mark, since))
        if found:
            raise self._changed(found)
        if view.others_version > self._base.version:
            self._compare(view, keys)
        self._checked = reached

    def _in_ranges(self, keys: Iterable[bytes]) -> list[bytes]:
        return [key for key in keys if any(each.contains(key) for each in self._ranges)]

    def _compare(self, view: TableView, keys: Collection[bytes]) -> None:
        """Raise Conflict when rows differ from those it read, because others committed (TX-3)."""
        if self._ranges:
            raise self._conflict(f"another process committed version {view.others_version}")
        width = self._base.context.encoder.width
        kind = pa.binary() if width is None else pa.binary(width)
        listed = sorted(keys)
        asked = cast("KeyArray", pa.array(listed, kind))
        now_ms = self.engine.parts.clock.now_ms()
        old = _by_place(self._base.as_of(now_ms), asked, self._sequence)
        new = _by_place(view.as_of(now_ms), asked, SEQUENCE_MAX)
        if old != new:
            places = [place for place in {*old, *new} if old.get(place) != new.get(place)]
            raise self._changed([listed[place] for place in sorted(places)])

    def _changed(self, keys: Sequence[bytes]) -> Conflict:
        context = self._base.context
        unique = list(dict.fromkeys(keys))
        decoded = [context.encoder.decode(key) for key in unique[:_NAMED_KEYS]]
        named = tuple(shown(key[0] if len(key) == 1 else key) for key in decoded)
        more = len(unique) - len(named)
        rest = f" and {more:,} more" if more else ""
        one = "the row of key" if len(unique) == 1 else "the rows of keys"
        return self._conflict(f"{one} {', '.join(named)}{rest} changed", keys=named)

    def _conflict(
        self, what: str, *, keys: tuple[str, ...] = (), hint: str | None = None
    ) -> Conflict:
        return Conflict(
            f"{what} since the transaction began, in table {self._name!a}",
            table=self._name,
            keys=keys,
            hint=hint or BEGIN_AGAIN,
        )


class _Commit(Decided):
    """The commit of a transaction, checked by the thread that commits its group (TX-2)."""

    __slots__ = ("_prepared", "_transaction")

    def __init__(self, transaction: TableTransaction) -> None:
        self._transaction = transaction
        self._prepared = transaction.prepared()
        self.byte_count = transaction.byte_count + 1

    def may_decide(self, unapplied: Unapplied) -> bool:
        """Return whether it can be checked now; raises Conflict."""
        return self._transaction.check_unapplied(unapplied)

    def __call__(self) -> PreparedBatch:
        """Return the write; raises Conflict."""
        self._transaction.check()
        return self._prepared


def _keys_of(write: PreparedWrite) -> Collection[bytes]:
    if not isinstance(write, PreparedBatch):
        return (write.key,)
    keys = write.keys
    assert keys is not None, "writes of every path know their keys"
    return key_objects(keys) if isinstance(keys, pa.Array) else keys


def _by_place(view: TableView, keys: KeyArray, sequence: int) -> dict[int, Row]:
    rows, places = view.get_many(keys, sequence)
    return dict(zip(places.tolist(), rows.to_pylist(), strict=True))


def _release(engine: TableEngine, view: TableView, sequence: int, since: int) -> None:
    engine.unpin_view(view, sequence)
    engine.current.transactions.end(since)
