"""KeyRange: a half-open stretch of encoded keys.

    start ≤ key < end          None on either side: no bound there

Keys are compared as bytes, which is the order of their values (see `neve.keys.encoding`).
A range whose start equals its end holds nothing and overlaps nothing.
"""

from dataclasses import dataclass
from typing import Self

from neve.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Every key from `start`, inclusive, to `end`, exclusive."""

    start: bytes | None = None
    end: bytes | None = None

    def __post_init__(self) -> None:
        for side, bound in (("start", self.start), ("end", self.end)):
            if bound is not None and not isinstance(bound, bytes):
                raise InvalidArgument(
                    f"{side} of a key range is {type(bound).__name__}, not bytes",
                    hint="Encode the key with KeyEncoder.encode, or pass None for no bound",
                )
        if self.start is not None and self.end is not None and self.start > self.end:
            raise InvalidArgument(
                "a key range ends before it starts", hint="Swap the start and the end"
            )

    @classmethod
    def with_prefix(cls, prefix: bytes) -> Self:
        """Return the range of all keys that begin with `prefix`."""
        return cls(prefix, cls.after(prefix))

    @staticmethod
    def after(prefix: bytes) -> bytes | None:
        """Return the smallest key above every key that begins with `prefix`, or None."""
        # FF has no successor, so the carry moves to the byte before it.
        shortened = prefix.rstrip(b"\xff")
        if not shortened:
            return None
        return shortened[:-1] + bytes((shortened[-1] + 1,))

    @property
    def is_empty(self) -> bool:
        """Whether no key can be inside."""
        # No key sorts below the empty one, so no start is the same bound as b"".
        return self.end is not None and (self.start or b"") >= self.end

    def contains(self, key: bytes) -> bool:
        """Whether `key` is inside."""
        return (self.start is None or self.start <= key) and (self.end is None or key < self.end)

    def intersection(self, other: "KeyRange") -> "KeyRange | None":
        """Return the keys inside both, or None when there can be none."""
        starts = [bound for bound in (self.start, other.start) if bound is not None]
        ends = [bound for bound in (self.end, other.end) if bound is not None]
        start = max(starts, default=None)
        end = min(ends, default=None)
        if end is not None and (start or b"") >= end:
            return None
        return KeyRange(start, end)
