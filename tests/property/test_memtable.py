"""A memtable agrees with a list of all changes ever made, at every sequence that can be asked."""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from neve.memtable.found_row import DELETED
from tests.unit.memtable.builders import Bench, Row

BENCHES: dict[str, tuple[Bench, st.SearchStrategy[tuple[object, ...]]]] = {
    "int64": (
        Bench.of([("id", pa.int64()), ("v", pa.string())], ["id"]),
        st.tuples(st.sampled_from([-(2**63), -1, 0, 1, 2, 255, 256, 2**63 - 1])),
    ),
    "string": (
        Bench.of([("v", pa.string()), ("name", pa.string())], ["name"]),
        st.tuples(st.sampled_from(["", "\0", "a", "a\0", "ab", "é", "user-00001", "user-00002"])),
    ),
    "wide": (
        Bench.of([("a", pa.int64()), ("v", pa.string()), ("b", pa.decimal128(5, 2))], ["b", "a"]),
        st.tuples(st.decimals(-1, 1, places=2), st.integers(-1, 1)),
    ),
    "two numbers": (
        Bench.of([("a", pa.int64()), ("b", pa.int32()), ("v", pa.string())], ["b", "a"]),
        st.tuples(st.integers(-2, 2), st.integers(-2, 2)),
    ),
    "text and number": (
        Bench.of([("n", pa.int32()), ("v", pa.string()), ("t", pa.string())], ["t", "n"]),
        st.tuples(st.sampled_from(["", "a", "a\0", "same beginning"]), st.integers(-2, 2)),
    ),
}
TEXTS = st.none() | st.text(max_size=3)


@dataclass(frozen=True)
class Change:
    sequence: int
    key: bytes
    row: Row | None


class MemtableAgreesWithAllChanges(RuleBasedStateMachine):
    """The model is a list of changes; nothing in it is ever dropped."""

    kind = "int64"

    def __init__(self) -> None:
        super().__init__()
        self.bench, self.keys = BENCHES[self.kind]
        self.history: list[Change] = []
        self.pins: Counter[int] = Counter()
        self.reclaimed = 0

    @initialize(first=st.integers(1, 50))
    def start(self, first: int) -> None:
        self.memtable = self.bench.memtable(first_sequence=first)
        self.next = first

    def row(self, data: st.DataObject) -> Row:
        values = dict(zip(self.bench.encoder.names, data.draw(self.keys), strict=True))
        empty = dict.fromkeys(column.name for column in self.bench.schema.columns)
        return {**empty, **values, "v": data.draw(TEXTS)}

    def remember(self, key: bytes, row: Row | None) -> None:
        self.history.append(Change(self.next, key, row))
        self.next += 1

    def newest(self, sequence: int) -> dict[bytes, Row | None]:
        return {each.key: each.row for each in self.history if each.sequence <= sequence}

    def sequences(self) -> st.SearchStrategy[int]:
        newest = st.integers(self.reclaimed, self.next + 2)
        return newest | st.sampled_from(sorted(self.pins)) if self.pins else newest

    @precondition(lambda self: not self.memtable.is_frozen)
    @rule(data=st.data(), gap=st.sampled_from([0, 0, 0, 3]))
    def put(self, data: st.DataObject, gap: int) -> None:
        row = self.row(data)
        self.next += gap
        self.memtable.put(self.next, self.bench.key_of(row), self.bench.value(row))
        self.remember(self.bench.key_of(row), row)

    @precondition(lambda self: not self.memtable.is_frozen)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = self.bench.key(*data.draw(self.keys))
        self.memtable.delete(self.next, key)
        self.remember(key, None)

    @precondition(lambda self: not self.memtable.is_frozen)
    @rule(data=st.data(), count=st.integers(0, 6), cut=st.integers(0, 2))
    def upsert_batch(self, data: st.DataObject, count: int, cut: int) -> None:
        rows = [self.row(data) for _ in range(count + cut)]
        keys, batch = self.bench.batch(rows)
        self.memtable.upsert_batch(self.next, keys.slice(cut), batch.slice(cut))
        for row in rows[cut:]:
            self.remember(self.bench.key_of(row), row)

    @precondition(lambda self: not self.memtable.is_frozen)
    @rule(data=st.data(), count=st.integers(0, 4))
    def delete_batch(self, data: st.DataObject, count: int) -> None:
        values = [data.draw(self.keys) for _ in range(count)]
        self.memtable.delete_batch(self.next, self.bench.keys(values))
        for each in values:
            self.remember(self.bench.key(*each), None)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        sequence = data.draw(self.sequences())
        assert self.memtable.pin(sequence)
        self.pins[sequence] += 1

    @precondition(lambda self: bool(self.pins))
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.pins)))
        self.memtable.unpin(sequence)
        self.pins = self.pins - Counter([sequence])

    @precondition(lambda self: not self.memtable.is_frozen)
    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        visible = data.draw(st.integers(self.reclaimed, self.next - 1) | st.just(self.next - 1))
        before = self.memtable.byte_count
        assert self.memtable.reclaim(visible) == before - self.memtable.byte_count >= 0
        self.reclaimed = max(self.reclaimed, visible)

    @rule()
    def freeze(self) -> None:
        # Not at once, or most histories would be empty.
        if len(self.history) > 20:
            self.memtable.freeze()

    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        key = self.bench.key(*data.draw(self.keys))
        sequence = data.draw(self.sequences())

        for found, newest in (
            (self.memtable.get(key), self.newest(self.next)),
            (self.memtable.get_at(key, sequence), self.newest(sequence)),
        ):
            wanted = newest.get(key) or DELETED if key in newest else None
            assert self.bench.row(found) == wanted

    @rule(data=st.data())
    def view(self, data: st.DataObject) -> None:
        sequence = data.draw(self.sequences())
        newest = dict(sorted(self.newest(sequence).items()))
        live = {key: row for key, row in newest.items() if row is not None}

        view = self.memtable.view(sequence)
        rows = view.live()

        rows.validate(full=True)
        assert rows.schema.equals(self.bench.schema.arrow_schema, check_metadata=True)
        assert rows.to_pylist() == list(live.values())
        assert view.live_keys().to_pylist() == list(live)
        assert view.keys().to_pylist() == list(newest)
        if newest:
            last = {each.key: each.sequence for each in self.history if each.sequence <= sequence}
            assert view.sequence_min == min(last.values())
            assert view.sequence_max == max(last.values())

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "memtable"):
            return
        assert self.memtable.is_empty == (not self.history)
        assert self.memtable.last_sequence == (self.history[-1].sequence if self.history else 0)
        keys = {each.key for each in self.history}
        assert len(keys) <= self.memtable.row_count <= len(self.history)
        assert (self.memtable.byte_count > 0) == bool(self.history)


@pytest.mark.parametrize("kind", BENCHES)
def test_a_memtable_agrees_with_the_list_of_all_changes(kind: str) -> None:
    machine = type(f"Memtable of {kind}", (MemtableAgreesWithAllChanges,), {"kind": kind})
    # Its rules and invariants assert.
    run_state_machine_as_test(machine)
