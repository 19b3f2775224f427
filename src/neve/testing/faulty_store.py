"""FaultyStore: an object store that fails by plan, within what an ObjectStore may do.

A plan is a list of faults, each for one call by its number, or for calls by operation and path. The
effect of a fault on the store, and what the caller sees:

    fault        the store                            a write raises     a read raises
    ───────────────────────────────────────────────────────────────────────────────────
    BEFORE       is not asked                         Unavailable        Unavailable
    CONFLICT     is not asked                         Unavailable        Unavailable
    TIMEOUT      is not asked                         OutcomeUnknown     Unavailable
    LOST         does it                              OutcomeUnknown     Unavailable
    BUSY         does it                              OutcomeUnknown     Unavailable
    LATE         does it just before the next write   OutcomeUnknown     Unavailable
    TWICE        does it, and once more               (nothing)          (nothing)

TWICE is a request delivered twice: the second delivery of a conditional write is refused because of
the first, and a store that reads back recognizes the first as its own.

The same plan drives the server in `neve.testing.s3_servers`, with the faults of HTTP: 503, 409, no
answer, a dropped connection. Nothing here is random: one plan, one outcome.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import TypeVar

from neve.errors import InvalidArgument, OutcomeUnknown, Unavailable
from neve.storage.object_store import ObjectInfo, ObjectStore, StoredObject

T = TypeVar("T")


class Operation(StrEnum):
    """The calls of an ObjectStore."""

    GET = "get"
    GET_IF_CHANGED = "get_if_changed"
    GET_RANGE = "get_range"
    SIZE = "size"
    PUT = "put"
    PUT_IF_ABSENT = "put_if_absent"
    PUT_IF_MATCH = "put_if_match"
    LIST = "list"
    DELETE = "delete"


WRITES = frozenset(
    {Operation.PUT, Operation.PUT_IF_ABSENT, Operation.PUT_IF_MATCH, Operation.DELETE}
)


class Fault(StrEnum):
    """What goes wrong; see the table above."""

    BEFORE = "before"
    CONFLICT = "conflict"
    TIMEOUT = "timeout"
    LOST = "lost"
    BUSY = "busy"
    LATE = "late"
    TWICE = "twice"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """A fault and the calls it strikes: the one numbered `call`, or up to `times` that fit."""

    fault: Fault
    call: int | None = None
    operation: Operation | None = None
    path_prefix: str = ""
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 1 or (self.call is not None and self.call < 1):
            raise InvalidArgument("calls are counted from 1, and a fault strikes at least once")

    def fits(self, call: "StoreCall") -> bool:
        """Whether the fault strikes this call, if it has strikes left."""
        return (
            self.call in {None, call.number}
            and self.operation in {None, call.operation}
            and call.path.startswith(self.path_prefix)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCall:
    """One call as it was made, numbered from 1."""

    number: int
    operation: Operation
    path: str
    fault: Fault | None = None


class FaultPlan:
    """Decides call by call which fault strikes, and records the calls; safe for many threads."""

    def __init__(self, faults: Sequence[PlannedFault] = ()) -> None:
        # Guarded by _lock.
        self._lock = Lock()
        self._faults = list(faults)
        self._strikes_left = [fault.times for fault in faults]
        self._calls: list[StoreCall] = []

    @property
    def calls(self) -> tuple[StoreCall, ...]:
        """Every call so far, in order."""
        with self._lock:
            return tuple(self._calls)

    def next_call(self, operation: Operation, path: str) -> StoreCall:
        """Record a call, with the first planned fault that fits and has strikes left."""
        with self._lock:
            call = StoreCall(number=len(self._calls) + 1, operation=operation, path=path)
            for index, planned in enumerate(self._faults):
                if self._strikes_left[index] and planned.fits(call):
                    self._strikes_left[index] -= 1
                    call = StoreCall(
                        number=call.number, operation=operation, path=path, fault=planned.fault
                    )
                    break
            self._calls.append(call)
            return call


class FaultyStore:
    """An ObjectStore around another that fails by plan."""

    def __init__(
        self,
        inner: ObjectStore,
        plan: Sequence[PlannedFault] = (),
        *,
        before_call: Callable[[StoreCall], None] | None = None,
    ) -> None:
        """Wrap `inner`; `before_call` sees each call before it is made, to delay or interleave."""
        # Fixed at construction.
        self._inner = inner
        self._plan = FaultPlan(plan)
        self._before_call = before_call
        # Guarded by _late_lock.
        self._late_lock = Lock()
        self._late: list[Callable[[], object]] = []

    @property
    def location(self) -> str:
        """Root of the inner store."""
        return self._inner.location

    @property
    def calls(self) -> tuple[StoreCall, ...]:
        """Every call so far, in order."""
        return self._plan.calls

    def get(self, path: str) -> StoredObject:
        """Read a whole object."""
        return self._read(Operation.GET, path, lambda: self._inner.get(path))

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`."""
        return self._read(
            Operation.GET_IF_CHANGED, path, lambda: self._inner.get_if_changed(path, tag=tag)
        )

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read a part of an object."""
        return self._read(
            Operation.GET_RANGE,
            path,
            lambda: self._inner.get_range(path, start=start, length=length),
        )

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        return self._read(Operation.SIZE, path, lambda: self._inner.size(path))

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object."""
        return self._write(Operation.PUT, path, lambda: self._inner.put(path, payload))

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object."""
        return self._write(
            Operation.PUT_IF_ABSENT, path, lambda: self._inner.put_if_absent(path, payload)
        )

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`."""
        return self._write(
            Operation.PUT_IF_MATCH, path, lambda: self._inner.put_if_match(path, payload, tag=tag)
        )

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path starts with `prefix`; a fault strikes at the call."""
        return self._read(Operation.LIST, prefix, lambda: self._inner.list(prefix, after=after))

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._write(Operation.DELETE, path, lambda: self._inner.delete(path))

    def _read(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        made = self._begin(operation, path)
        match made.fault:
            case None:
                return call()
            case Fault.TWICE:
                call()
                return call()
            case fault:
                raise Unavailable(f"planned fault {fault} of call {made.number}", path=path)

    def _write(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        made = self._begin(operation, path)
        for late in self._take_late():
            late()
        match made.fault:
            case None:
                return call()
            case Fault.TWICE:
                first = call()
                second = call()
                # The tag of the current state: a refused second delivery changed nothing.
                return first if second is None else second
            case Fault.BEFORE | Fault.CONFLICT:
                raise Unavailable(f"planned fault {made.fault} of call {made.number}", path=path)
            case Fault.LOST | Fault.BUSY:
                call()
            case Fault.LATE:
                with self._late_lock:
                    self._late.append(call)
            case Fault.TIMEOUT:
                pass
        raise OutcomeUnknown(f"planned fault {made.fault} of call {made.number}", path=path)

    def _begin(self, operation: Operation, path: str) -> StoreCall:
        made = self._plan.next_call(operation, path)
        if self._before_call is not None:
            self._before_call(made)
        return made

    def _take_late(self) -> "Sequence[Callable[[], object]]":
        with self._late_lock:
            late, self._late = self._late, []
        return late
