"""Moments in time from a datetime, ISO 8601 text, an age, or milliseconds since 1970.

    datetime(2024, 1, 31, 12, tzinfo=UTC)
    "2024-01-31T12:00:00+00:00"
    "2h ago", "7d"                          seconds, minutes, hours or days before now
    1706702400000, "1706702400000"

A text or a datetime without a time zone is ambiguous and refused. Only 13 digits are milliseconds,
in the years 2001 to 2286: a year, day, minute or second of ISO 8601 has another length, and so have
seconds and microseconds since 1970.
"""

import re
from datetime import datetime, timedelta
from typing import Final

from neve.errors import InvalidArgument, Phrase, Wording
from neve.model.display import EPOCH, shown, shown_moment
from neve.storage.clock import Clock

Moment = int | datetime | str

_AGE: Final = re.compile(r"([0-9]{1,9}) ?([smhd])(?: ago)?")
_MILLISECONDS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER: Final = re.compile(r"[0-9]{13}")
_HINT: Final = Wording(Phrase.NAME_A_TIME)


def moment_ms(moment: Moment, clock: Clock) -> int:
    """Return milliseconds since 1970, rounded down; raises InvalidArgument."""
    match moment:
        case bool():
            pass
        case int():
            return moment
        case datetime():
            return _since_epoch(moment)
        case str():
            return _text_ms(moment.strip(), clock)
    raise InvalidArgument(f"{type(moment).__name__} is not a time", hint=_HINT)


def past_moment_ms(moment: Moment, clock: Clock) -> int:
    """Return a past moment in milliseconds since 1970; raises InvalidArgument."""
    given_ms, now_ms = moment_ms(moment, clock), clock.now_ms()
    if given_ms > now_ms:
        raise InvalidArgument(
            f"{shown_moment(given_ms)} is in the future: it is {shown_moment(now_ms)} now",
            hint="Use a time in the past, or an age such as '7d'",
        )
    return given_ms


def _text_ms(text: str, clock: Clock) -> int:
    if _NUMBER.fullmatch(text):
        return int(text)
    if age := _AGE.fullmatch(text):
        return clock.now_ms() - int(age[1]) * _MILLISECONDS[age[2]]
    try:
        return _since_epoch(datetime.fromisoformat(text))
    except ValueError as error:
        raise InvalidArgument(f"{shown(text)} is not a time", hint=_HINT) from error


def _since_epoch(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidArgument(f"{moment.isoformat()} has no time zone", hint=_HINT)
    return (moment - EPOCH) // timedelta(milliseconds=1)
