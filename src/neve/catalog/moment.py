"""A moment in time as people give it: milliseconds since 1970, a datetime, or ISO 8601 text."""

from datetime import UTC, datetime, timedelta
from typing import Final

from neve.errors import InvalidArgument

Moment = int | datetime | str

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HINT: Final = "Give milliseconds since 1970, an aware datetime, or '2024-01-31T12:00:00+00:00'"


def moment_ms(moment: Moment) -> int:
    """Give milliseconds since 1970, rounded down; raises InvalidArgument."""
    match moment:
        case bool():
            pass
        case int():
            return moment
        case datetime():
            return _since_epoch(moment)
        case str():
            try:
                return _since_epoch(datetime.fromisoformat(moment))
            except ValueError as error:
                raise InvalidArgument(f"{moment[:40]!a} is no time", hint=_HINT) from error
    raise InvalidArgument(f"a time cannot be {type(moment).__name__}", hint=_HINT)


def shown_moment(milliseconds: int) -> str:
    """Spell a time as ISO 8601 in UTC; a number too large for that stays one."""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms"


def _since_epoch(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidArgument(f"{moment.isoformat()} has no time zone", hint=_HINT)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
