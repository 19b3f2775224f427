"""States, sessions and the whole store against plain dicts, over generated histories."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
)

from neve.errors import Conflict
from neve.manifest.documents import (
    Lease,
    Segment,
    decode_checkpoint,
    decode_head,
    decode_lease,
    decode_segment,
    encode_checkpoint,
    encode_head,
    encode_lease,
    encode_segment,
)
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import WriteSession
from neve.manifest.state import Records, State
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

# Few letters, so that keys meet and prefixes hold several of them; some outside of ASCII, whose
# order as text must be that of their bytes.
KEYS = st.text(alphabet="ab/\0é\U0001f600", max_size=4)
VALUES = st.binary(max_size=8)
CHANGES = st.dictionaries(KEYS, st.none() | VALUES, max_size=4)
HISTORIES = st.lists(st.tuples(CHANGES, st.booleans()), max_size=8)
IDS = st.binary(max_size=20)
NUMBERS = st.integers(min_value=0, max_value=(1 << 64) - 1)
TIMES = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)


def changed(content: Mapping[str, bytes], records: Records) -> dict[str, bytes]:
    after = {**content, **{key: value for key, value in records.items() if value is not None}}
    return {key: value for key, value in after.items() if records.get(key, b"") is not None}


def replayed(history: list[tuple[dict[str, bytes | None], bool]]) -> tuple[State, dict[str, bytes]]:
    """Apply a history to a state, folded where it says so, and to a dict."""
    state, content = State(), dict[str, bytes]()
    for number, (records, is_folded) in enumerate(history, start=1):
        state = state.apply(records, segment=number, transaction=b"t%d" % number, epoch=7)
        content = changed(content, records)
        if is_folded:
            state = state.folded()
    return state, content


@given(HISTORIES, KEYS, st.none() | KEYS)
def test_a_state_agrees_with_a_dict(
    history: list[tuple[dict[str, bytes | None], bool]], prefix: str, after: str | None
) -> None:
    state, content = replayed(history)

    expected = [
        (key, value)
        for key, value in sorted(content.items(), key=lambda item: item[0].encode())
        if key.startswith(prefix) and (after is None or key > after)
    ]
    assert list(state.scan(prefix, after=after)) == expected
    assert all(state.get(key) == content.get(key) for key in [*content, prefix])


@given(HISTORIES)
def test_a_checkpoint_is_the_same_wherever_it_was_folded_before(
    history: list[tuple[dict[str, bytes | None], bool]],
) -> None:
    state, content = replayed(history)
    unfolded, _ = replayed([(records, False) for records, _ in history])

    payload = encode_checkpoint(state)

    assert payload == encode_checkpoint(unfolded)
    read = decode_checkpoint(payload, number=state.segment, path="checkpoint")
    assert dict(read.scan("")) == content
    assert read.recent == state.recent
    assert read == state.folded()


@given(NUMBERS, NUMBERS, IDS, IDS, TIMES, CHANGES)
def test_a_segment_comes_back(  # noqa: PLR0917
    epoch: int,
    number: int,
    transaction: bytes,
    previous: bytes,
    written_ms: int,
    records: dict[str, bytes | None],
) -> None:
    segment = Segment(
        epoch=epoch,
        number=number,
        transaction=transaction,
        previous=previous,
        written_ms=written_ms,
        records=records,
    )

    assert decode_segment(encode_segment(segment), number=number, path="segment") == segment


@given(NUMBERS, st.integers(1, (1 << 64) - 1), NUMBERS, IDS, IDS)
def test_a_head_comes_back(
    epoch: int, segment: int, checkpoint: int, transaction: bytes, nonce: bytes
) -> None:
    checkpoint = min(checkpoint, segment)
    payload = encode_head(
        epoch=epoch, segment=segment, transaction=transaction, checkpoint=checkpoint, nonce=nonce
    )

    head = decode_head(payload, tag="t", path="HEAD")

    assert (head.epoch, head.segment, head.checkpoint) == (epoch, segment, checkpoint)
    assert head.transaction == transaction


@given(st.text(max_size=10), NUMBERS, TIMES)
def test_a_lease_comes_back(lease_id: str, version: int, expires_ms: int) -> None:
    lease = Lease(lease_id=lease_id, version=version, expires_ms=expires_ms)

    assert decode_lease(encode_lease(lease), path="lease") == lease


@given(HISTORIES, CHANGES, st.sets(KEYS, max_size=3), st.sets(KEYS, max_size=2), CHANGES)
def test_exactly_what_was_read_and_changed_has_moved(
    history: list[tuple[dict[str, bytes | None], bool]],
    staged: dict[str, bytes | None],
    keys: set[str],
    prefixes: set[str],
    later: dict[str, bytes | None],
) -> None:
    state, before = replayed(history)
    session = WriteSession(state)
    for key in keys:
        session.get(key)
    for prefix in prefixes:
        session.scan(prefix)
    for key, value in staged.items():
        if value is None:
            session.delete(key)
        else:
            session.put(key, value)

    newer = state.apply(later, segment=state.segment + 1, transaction=b"x", epoch=7)

    after = changed(before, later)
    read = keys | {key for key in {*before, *after} if key.startswith(tuple(prefixes))}
    assert session.moved_keys(newer) == tuple(
        sorted(key for key in read if before.get(key) != after.get(key))
    )
    assert dict(session.view().scan("")) == changed(before, staged)


class StoreAgreesWithADict(RuleBasedStateMachine):
    """Two processes on one store: every read gives what the history of commits gives."""

    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.objects = MemoryStore()
        self.handles = 0
        self.stores = [self.open_one(), self.open_one()]
        self.content: dict[str, bytes] = {}

    def open_one(self) -> ManifestStore:
        self.handles += 1
        ids = SeededIds(self.handles)
        return ManifestStore(self.objects, "m", clock=SimulatedClock(), ids=ids)

    @rule(at=st.integers(0, 1), records=CHANGES)
    def commit(self, at: int, records: dict[str, bytes | None]) -> None:
        def run(session: WriteSession) -> dict[str, bytes]:
            for key, value in records.items():
                if value is None:
                    session.delete(key)
                else:
                    session.put(key, value)
            return dict(session.scan(""))

        seen = self.stores[at].transact(run)

        self.content = changed(self.content, records)
        assert seen == self.content

    @rule(target=sessions, at=st.integers(0, 1), key=KEYS, prefix=KEYS)
    def begin(self, at: int, key: str, prefix: str) -> tuple[WriteSession, str, str]:
        session = self.stores[at].write()
        assert session.get(key) == self.content.get(key)
        list(session.scan(prefix))
        return session, key, prefix

    @rule(at=st.integers(0, 1), begun=consumes(sessions), key=KEYS, value=VALUES)
    def commit_by_hand(
        self, at: int, begun: tuple[WriteSession, str, str], key: str, value: bytes
    ) -> None:
        session, read_key, prefix = begun
        before = dict(session.state.scan(""))
        touched = {read_key} | {k for k in {*before, *self.content} if k.startswith(prefix)}
        moved = sorted(k for k in touched if before.get(k) != self.content.get(k))
        session.put(key, value)
        if not moved:
            self.stores[at].commit(session)
            self.content = changed(self.content, {key: value})
            return
        with pytest.raises(Conflict) as caught:
            self.stores[at].commit(session)
        assert list(caught.value.keys) == moved

    @rule(at=st.integers(0, 1))
    def checkpoint(self, at: int) -> None:
        self.stores[at].checkpoint()

    @rule(at=st.integers(0, 1))
    def collect(self, at: int) -> None:
        self.stores[at].collect_once()

    @rule(at=st.integers(0, 1))
    def reopen(self, at: int) -> None:
        self.stores[at] = self.open_one()
        assert dict(self.stores[at].open().scan("")) == self.content

    @invariant()
    def every_handle_reads_the_same(self) -> None:
        for store in self.stores:
            assert dict(store.read().scan("")) == self.content


TestStoreAgreesWithADict = StoreAgreesWithADict.TestCase
