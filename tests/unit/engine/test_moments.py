"""Old Versions by number, tag and time, to read and to go back to, in every form of a time."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

import neve
from neve.errors import InvalidArgument, NotFound
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.tables import a_catalog, a_table, rows

HOUR_SECONDS = 3_600


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def table(clock: SimulatedClock) -> neve.Table:
    """Return a table whose Versions 2 and 3, of 10 and 20 rows, are three and one hours old."""
    made = a_table(a_catalog(clock=clock))
    made.upsert(rows(0, 10))
    made.flush()
    clock.advance(2 * HOUR_SECONDS)
    made.upsert(rows(10, 20))
    made.flush()
    clock.advance(HOUR_SECONDS)
    made.tag("first", 2)
    return made


def a_time(clock: SimulatedClock) -> list[int | str | datetime]:
    """Return one moment, two hours ago, in all its forms."""
    then_ms = clock.now_ms() - 2 * HOUR_SECONDS * 1_000
    then = datetime.fromtimestamp(then_ms / 1_000, UTC)
    return [then_ms, str(then_ms), then, then.isoformat(), "2h ago", "120m", "7200s ago"]


def test_every_form_of_a_time_reads_the_same_version(
    table: neve.Table, clock: SimulatedClock
) -> None:
    for moment in a_time(clock):
        with table.at(timestamp=moment) as then:
            assert then.version == 2
            assert then.scan().count() == 10
    with table.at(timestamp="30m ago") as then:
        assert then.version == 3


def test_a_rollback_goes_to_a_number_a_tag_or_a_time(
    table: neve.Table, clock: SimulatedClock
) -> None:
    for where in (
        {"version": 2},
        {"tag": "first"},
        *({"timestamp": each} for each in a_time(clock)),
    ):
        table.rollback(3)
        assert table.scan().count() == 20

        number = table.rollback(**where)  # type: ignore[arg-type]  # each has its own form

        assert number == table.version
        assert table.scan().count() == 10


def test_a_rollback_to_nowhere_changes_nothing(table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match="Pass one of version, timestamp and tag"):
        table.rollback()
    with pytest.raises(InvalidArgument, match="Pass one of version, timestamp and tag"):
        table.rollback(2, tag="first")
    with pytest.raises(NotFound, match="no tag 'frist'"):
        table.rollback(tag="frist")
    with pytest.raises(NotFound, match="no retained version was current"):
        table.rollback(timestamp="5d ago")
    with pytest.raises(InvalidArgument, match="is not a time"):
        table.rollback(timestamp="a while ago")

    assert table.version == 3


def test_what_is_older_than_an_age_expires(table: neve.Table) -> None:
    report = table.expire(older_than="90m ago")

    assert report.expired_versions == (1,)
    assert table.history().column("version").to_pylist() == [2, 3], "the tagged one stays"


@pytest.mark.parametrize("form", [int, str, lambda ms: datetime.fromtimestamp(ms / 1_000, UTC)])
def test_what_is_older_than_a_time_to_come_does_not_expire(
    table: neve.Table, clock: SimulatedClock, form: Callable[[int], int | str | datetime]
) -> None:
    with pytest.raises(InvalidArgument, match="is in the future"):
        table.expire(older_than=form(clock.now_ms() + 1))

    assert table.history().column("version").to_pylist() == [1, 2, 3]
    assert table.expire(older_than=form(clock.now_ms())).expired_versions == (1,)


def test_a_time_written_as_digits_does_not_expire_history(table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match="is not a time"):
        table.expire(older_than="20240131120000")

    assert table.history().column("version").to_pylist() == [1, 2, 3]
