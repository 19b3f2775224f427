"""The folded content of a store as a value: what applying, folding and scanning give."""

from neve.manifest.state import RECENT_TRANSACTIONS_MAX, Records, State


def applied(state: State, records: Records) -> State:
    number = state.segment + 1
    return state.apply(records, segment=number, transaction=b"t%d" % number, epoch=9)


def state_with(*changes: Records, folded_after: int = 0) -> State:
    state = State()
    for number, records in enumerate(changes, start=1):
        state = applied(state, records)
        if number == folded_after:
            state = state.folded()
    return state


def test_an_older_state_keeps_what_it_held() -> None:
    before = state_with({"a": b"1", "b": b"1"}, folded_after=1)

    after = applied(before, {"a": b"2", "b": None, "c": b"3"})

    assert dict(before.scan("")) == {"a": b"1", "b": b"1"}
    assert dict(after.scan("")) == {"a": b"2", "c": b"3"}


def test_the_newest_record_of_a_key_wins() -> None:
    state = state_with({"a": b"1"}, {"a": None}, {"a": b"3"}, folded_after=2)

    assert state.get("a") == b"3"


def test_a_deleted_key_is_neither_got_nor_scanned() -> None:
    for folded_after in range(3):
        state = state_with({"a": b"1", "b": b"2"}, {"a": None}, folded_after=folded_after)

        assert state.get("a") is None
        assert list(state.scan("")) == [("b", b"2")]


def test_an_empty_value_is_a_value() -> None:
    state = state_with({"a": b""}, folded_after=1)

    assert state.get("a") == b""
    assert list(state.scan("")) == [("a", b"")]


def test_a_scan_merges_entries_and_changes_in_order() -> None:
    state = state_with({"a": b"1", "c": b"1", "e": b"1"}, {"b": b"2", "c": b"2"}, folded_after=1)

    assert list(state.scan("")) == [("a", b"1"), ("b", b"2"), ("c", b"2"), ("e", b"1")]


def test_a_scan_stays_within_its_prefix() -> None:
    keys = {"job": b"", "job/": b"", "job/1": b"", "job/2": b"", "job0": b"", "tag/1": b""}
    for folded_after in (0, 1):
        state = state_with(keys, folded_after=folded_after)

        assert [key for key, _ in state.scan("job/")] == ["job/", "job/1", "job/2"]
        assert list(state.scan("nothing")) == []


def test_a_scan_begins_behind_a_key() -> None:
    for folded_after in (0, 1):
        state = state_with({"a": b"", "a\0": b"", "b": b"", "c": b""}, folded_after=folded_after)

        assert [key for key, _ in state.scan("", after="a")] == ["a\0", "b", "c"]
        assert [key for key, _ in state.scan("b", after="a")] == ["b"]
        assert list(state.scan("b", after="c")) == []


def test_folding_changes_the_form_and_not_the_content() -> None:
    state = state_with({"a": b"1", "b": b"2"}, {"a": None, "c": b"3"})

    folded = state.folded()

    assert dict(folded.scan("")) == dict(state.scan(""))
    assert (folded.segment, folded.transaction) == (state.segment, state.transaction)
    assert (folded.checkpoint, folded.changes, folded.change_bytes) == (2, {}, 0)


def test_a_state_remembers_who_got_the_recent_segments() -> None:
    state = State()
    for _ in range(RECENT_TRANSACTIONS_MAX + 10):
        state = applied(state, {})

    assert state.transaction_of(10) is None
    assert state.transaction_of(11) == b"t11"
    assert state.transaction_of(state.segment) == state.transaction == b"t1034"
    assert state.transaction_of(state.segment + 1) is None
    assert len(state.folded().recent) == RECENT_TRANSACTIONS_MAX


def test_applying_costs_no_copy_of_the_entries() -> None:
    folded = state_with({f"key {n:05}": b"v" for n in range(1_000)}, folded_after=1)

    after = applied(folded, {"key 00000": b"new"})

    assert after.entries is folded.entries
    assert after.changes == {"key 00000": b"new"}


def test_the_weight_of_changes_counts_every_record() -> None:
    state = state_with({"abc": b"12345"}, {"abc": None, "d": b"1"})

    assert state.change_bytes == 8 + 3 + 2
    assert state.folded().entries.byte_count == 2
