"""Sessions: a pinned view, and a staged one that knows what it read."""

import pytest

from neve.errors import InvalidArgument
from neve.manifest.sessions import ReadSession, WriteSession
from neve.manifest.state import Records, State


def state_with(records: Records) -> State:
    return State().apply(records, segment=1, transaction=b"t1", epoch=9)


def later(state: State, records: Records) -> State:
    number = state.segment + 1
    return state.apply(records, segment=number, transaction=b"t%d" % number, epoch=9)


BASE = state_with({"a": b"1", "job/1": b"x", "job/2": b"y"})


class TestReading:
    def test_a_read_session_never_changes(self) -> None:
        session = ReadSession(BASE)

        later(BASE, {"a": b"2"})

        assert session.get("a") == b"1"
        assert session.segment == 1
        assert [key for key, _ in session.scan("job/")] == ["job/1", "job/2"]
        assert [key for key, _ in session.scan("job/", after="job/1")] == ["job/2"]


class TestRange:
    FIVE = state_with({"a": b"1", "b": b"2", "c": b"3", "d": b"4", "é": b"5"})

    @pytest.mark.parametrize(
        ("low", "high", "found"),
        [
            ("b", "d", "bc"),
            ("b", "d\0", "bcd"),
            ("", "b", "a"),
            ("aa", "az", ""),
            ("c", None, "cdé"),
            ("", None, "abcdé"),
            ("d", "b", ""),
            ("b", "b", ""),
        ],
    )
    def test_a_range_begins_with_its_low_end_and_stops_before_its_high_end(
        self, low: str, high: str | None, found: str
    ) -> None:
        for state in (self.FIVE, self.FIVE.folded()):
            assert "".join(key for key, _ in ReadSession(state).range(low, high)) == found
            assert "".join(key for key, _ in WriteSession(state).range(low, high)) == found

    def test_a_range_shows_changes_over_the_checkpoint_in_order(self) -> None:
        state = later(self.FIVE.folded(), {"b": None, "bb": b"new", "c": b"33"})

        assert list(ReadSession(state).range("a", "d")) == [
            ("a", b"1"),
            ("bb", b"new"),
            ("c", b"33"),
        ]

    def test_a_range_of_a_write_session_shows_what_is_staged(self) -> None:
        session = WriteSession(self.FIVE)
        session.put("bb", b"staged")
        session.delete("c")

        assert [key for key, _ in session.range("b", "d")] == ["b", "bb"]

    @pytest.mark.parametrize("key", ["b", "bb", "c"])
    def test_a_change_inside_a_range_that_was_read_moves_it(self, key: str) -> None:
        session = WriteSession(self.FIVE)
        list(session.range("b", "d"))

        assert session.moved_keys(later(self.FIVE, {key: b"changed"})) == (key,)

    @pytest.mark.parametrize("key", ["a", "d", "é"])
    def test_a_change_beside_a_range_that_was_read_moves_nothing(self, key: str) -> None:
        session = WriteSession(self.FIVE)
        list(session.range("b", "d"))

        assert session.moved_keys(later(self.FIVE, {key: b"changed"})) == ()

    def test_a_range_without_a_high_end_is_moved_by_whatever_comes_behind_its_low_end(self) -> None:
        session = WriteSession(self.FIVE)
        list(session.range("b"))

        assert session.moved_keys(later(self.FIVE, {"a": b"x", "zz": b"x"})) == ("zz",)


class TestStaging:
    def test_reads_see_what_is_staged_and_nobody_else_does(self) -> None:
        session = WriteSession(BASE)

        session.put("a", b"2")
        session.delete("job/1")
        session.put("job/3", b"z")

        assert session.get("a") == b"2"
        assert session.get("job/1") is None
        assert list(session.scan("job/")) == [("job/2", b"y"), ("job/3", b"z")]
        assert list(session.scan("job/", after="job/2")) == [("job/3", b"z")]
        assert BASE.get("a") == b"1"

    def test_deleting_what_is_not_there_is_no_error(self) -> None:
        session = WriteSession(BASE)

        session.delete("nothing")

        assert session.get("nothing") is None

    def test_a_key_that_has_no_bytes_is_refused_when_it_is_staged(self) -> None:
        session = WriteSession(BASE)

        with pytest.raises(InvalidArgument, match="UTF-8") as caught:
            session.put("half \ud800", b"v")
        with pytest.raises(InvalidArgument, match="UTF-8"):
            session.delete("\udfff")

        assert caught.value.hint
        assert session.staged == {}


class TestWhatMoved:
    def test_a_key_that_was_read_and_changed_has_moved(self) -> None:
        session = WriteSession(BASE)
        session.get("a")
        session.get("missing")

        assert session.moved_keys(later(BASE, {"a": b"2"})) == ("a",)
        assert session.moved_keys(later(BASE, {"a": None})) == ("a",)
        assert session.moved_keys(later(BASE, {"missing": b"", "a": b"2"})) == ("a", "missing")

    def test_a_key_that_was_not_read_does_not_matter(self) -> None:
        session = WriteSession(BASE)
        session.get("a")
        session.put("b", b"1")

        assert session.moved_keys(later(BASE, {"b": b"2", "job/1": None})) == ()

    def test_a_phantom_in_a_scanned_prefix_has_moved(self) -> None:
        session = WriteSession(BASE)
        list(session.scan("job/"))

        assert session.moved_keys(later(BASE, {"job/9": b"new"})) == ("job/9",)
        assert session.moved_keys(later(BASE, {"job/2": None})) == ("job/2",)
        assert session.moved_keys(later(BASE, {"job/1": b"other"})) == ("job/1",)
        assert session.moved_keys(later(BASE, {"jobs": b"new"})) == ()

    def test_a_scan_counts_from_its_call_and_not_from_its_use(self) -> None:
        session = WriteSession(BASE)

        session.scan("job/")

        assert session.moved_keys(later(BASE, {"job/9": b"new"})) == ("job/9",)

    def test_a_value_that_came_back_has_not_moved(self) -> None:
        session = WriteSession(BASE)
        session.get("a")

        assert session.moved_keys(later(later(BASE, {"a": b"2"}), {"a": b"1"})) == ()

    def test_reading_what_the_session_staged_itself_is_no_read_of_the_state(self) -> None:
        session = WriteSession(BASE)
        session.put("a", b"2")
        session.get("a")

        assert session.moved_keys(later(BASE, {"a": b"3"})) == ()


def test_a_value_that_is_not_bytes_is_refused() -> None:
    session = WriteSession(BASE)

    with pytest.raises(InvalidArgument, match="'a'"):
        session.put("a", "text")  # type: ignore[arg-type]

    assert session.staged == {}
