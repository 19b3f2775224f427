"""Decisions: which transactions over several tables were committed; in the catalog's store.

    txn/<session>-<n>    {"format": 1, "tables": {"<table id>": "<last sequence>", …}, "at_ms": …}
    txn-session/<id>     {"format": 1, "at_ms": …}        a process that may still decide

1. The process that commits has a session.
2. It logs the part of each table, synced: prepared, but not visible to anyone.
3. It decides, as one transaction of this store: if its session exists, `txn/…` is put. Only now is
   the transaction committed; each table shows its part.
4. A writer that opens a table and finds a part without a decision deletes the session, as one
   transaction too. So no decision can follow, and the part is dropped.
5. A table whose part is in data files leaves the decision; the last one deletes it.

MANIFEST-T1  A transaction is committed if and only if its decision was put. It stays until no log
             is needed that has a part.
MANIFEST-T2  A part that was dropped is never decided later: the session was deleted before, in the
             same order of transactions.
MANIFEST-T3  A session only fences. A process that loses its own begins another one.
"""

from collections.abc import Collection, Mapping
from typing import Final

from neve.manifest.json_document import Document, write_document
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import ReadSession, WriteSession
from neve.storage.clock import Clock, IdSource

_FORMAT: Final = 1
_DECISIONS: Final = "txn/"
_SESSIONS: Final = "txn-session/"
# A process that lives longer begins another session.
_SESSION_MS: Final = 24 * 60 * 60 * 1_000


class Decisions:
    """The decisions in the catalog's store; safe for many threads and processes."""

    def __init__(self, store: ManifestStore, *, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    # Deciding

    def begin_session(self) -> str:
        """Begin a session of this process; ends those that are too old. Return its id."""
        session_id = self._ids.uuid().hex
        now_ms = self._clock.now_ms()

        def run(session: WriteSession) -> None:
            for key, payload in list(session.scan(_SESSIONS)):
                if abs(now_ms - self._document(payload).integer("at_ms")) > _SESSION_MS:
                    session.delete(key)
            session.put(_SESSIONS + session_id, write_document(_FORMAT, {"at_ms": now_ms}))

        self._store.transact(run)
        return session_id

    def end_session(self, session_id: str) -> None:
        """End a session, when the process decides nothing any more."""
        self._store.transact(lambda session: session.delete(_SESSIONS + session_id))

    def decide(self, transaction: str, parts: Mapping[str, int]) -> bool:
        """Commit a transaction; False when its session is gone, and it never will be.

        `parts` are the tables, by id, and the last sequence of each part. Raises OutcomeUnknown:
        ask `settle`.
        """
        session_key = _SESSIONS + _session_of(transaction)
        payload = _encoded(parts, self._clock.now_ms())

        def run(session: WriteSession) -> bool:
            if session.get(session_key) is None:
                return False
            session.put(_DECISIONS + transaction, payload)
            return True

        return self._store.transact(run)

    # Recovering

    def are_decided(self, transactions: Collection[str]) -> dict[str, bool]:
        """Return which transactions are decided so far."""
        session = self._store.read()
        return {each: session.get(_DECISIONS + each) is not None for each in transactions}

    def settle(self, transaction: str) -> bool:
        """Return whether a transaction is decided; if not, it never will be from now on."""

        def run(session: WriteSession) -> bool:
            if session.get(_DECISIONS + transaction) is not None:
                return True
            key = _SESSIONS + _session_of(transaction)
            if session.get(key) is not None:
                session.delete(key)
            return False

        return self._store.transact(run)

    # Cleaning up

    def forget(self, table_id: str, *, flushed_sequence: int | None = None) -> None:
        """Take a table out of the decisions whose parts are in its data files.

        Without a sequence the table is dropped: no part of it is needed.
        """
        if not self._flushed_in(self._store.read_known(), table_id, flushed_sequence):
            return

        def run(session: WriteSession) -> None:
            found = self._flushed_in(session, table_id, flushed_sequence)
            for key, (parts, at_ms) in found.items():
                rest = {each: last for each, last in parts.items() if each != table_id}
                if rest:
                    session.put(key, _encoded(rest, at_ms))
                else:
                    session.delete(key)

        self._store.transact(run)

    def _flushed_in(
        self, session: ReadSession | WriteSession, table_id: str, flushed_sequence: int | None
    ) -> dict[str, tuple[dict[str, int], int]]:
        """Return decisions that a table can leave, by key."""
        found = {}
        for key, payload in list(session.scan(_DECISIONS)):
            document = self._document(payload)
            parts = {each: int(last) for each, last in document.text_map("tables").items()}
            last = parts.get(table_id)
            if last is not None and (flushed_sequence is None or last <= flushed_sequence):
                found[key] = parts, document.integer("at_ms")
        return found

    def _document(self, payload: bytes) -> Document:
        path = self._store.log.paths.prefix
        return Document.read(payload, format_number=_FORMAT, path=path)


def _encoded(parts: Mapping[str, int], at_ms: int) -> bytes:
    return write_document(
        _FORMAT, {"tables": {each: str(last) for each, last in parts.items()}, "at_ms": at_ms}
    )


def _session_of(transaction: str) -> str:
    return transaction.partition("-")[0]
