"""Histories of concurrent transactions, and the anomalies in them.

A transaction appends numbers to lists and reads lists. Each number is appended once, so that a list
says which transactions wrote it, and in which order:

    ada   append 1 to x                  x  1
    bob   read x: 1, append 2 to x       x  1 2
    eve   read x: 1, append 3 to x       x  1 3       what bob appended is lost

The last state of each list is the order of its versions. From that follow dependencies:

    a ─ww─▶ b    b wrote the version after that of a
    a ─wr─▶ b    b read the version that a wrote
    a ─rw─▶ b    b wrote the version after the one that a read
    a ─so─▶ b    b is the next transaction of the same client

HISTORY-1  A read has only numbers of committed transactions (dirty read), of none of them a part
           (intermediate read), and is a beginning of the last state.
HISTORY-2  Every acknowledged number is in the last state, and one of a refused transaction is not;
           of a transaction whose outcome is unknown all or nothing is.
HISTORY-3  Snapshot: there is no cycle of ww, wr and so in which single rw are allowed, but not two
           in a row. So lost updates and read skew are found, and write skew is allowed.
HISTORY-4  Serializable: there is no cycle at all.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


class Outcome(StrEnum):
    """What a client knows about a transaction."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction of a history."""

    name: str
    client: str
    outcome: Outcome
    reads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By list, what it read before its own appends."""
    appends: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By list, the numbers that it appended, in order."""


class History:
    """Transactions in the order in which their clients began them, and the last state of lists."""

    def __init__(
        self, transactions: Iterable[Transaction], last: Mapping[str, Sequence[int]]
    ) -> None:
        self._all = list(transactions)
        self._last = {name: list(numbers) for name, numbers in last.items()}
        self._writer = {
            (name, number): each
            for each in self._all
            for name, numbers in each.appends.items()
            for number in numbers
        }
        self._counted = [each for each in self._all if self._has_happened(each)]

    def anomalies(self, *, serializable: bool) -> list[str]:
        """Return what is wrong, each with the transactions that show it; empty when nothing is."""
        found = [*self._lost_or_torn(), *self._wrong_reads()]
        if found:
            return found  # the order of versions is not known
        ordered, overtaken = self._dependencies()
        if serializable:
            return _cycles(_joined(ordered, overtaken), "a cycle")
        # A cycle needs two rw in a row to be allowed: follow each other edge by at most one.
        steps: dict[str, set[str]] = defaultdict(set)
        for before, afters in ordered.items():
            steps[before] |= afters
            for after in afters:
                steps[before] |= overtaken.get(after, set())
        return _cycles(steps, "a cycle without write skew")

    def _has_happened(self, each: Transaction) -> bool:
        if each.outcome is Outcome.UNKNOWN and each.appends:
            return any(self._is_there(name, numbers) for name, numbers in each.appends.items())
        return each.outcome is Outcome.COMMITTED

    def _is_there(self, name: str, numbers: Sequence[int]) -> bool:
        return any(number in self._last.get(name, ()) for number in numbers)

    def _lost_or_torn(self) -> list[str]:
        found = []
        for name, numbers in self._last.items():
            if len(set(numbers)) < len(numbers):
                found.append(f"{name} has a number twice: {numbers}")
            strange = [number for number in numbers if (name, number) not in self._writer]
            if strange:
                found.append(f"{name} has {strange}, which no transaction appended")
        for each in self._all:
            there = {
                (name, number): number in self._last.get(name, ())
                for name, numbers in each.appends.items()
                for number in numbers
            }
            missing = [f"{name}: {number}" for (name, number), is_in in there.items() if not is_in]
            if each.outcome is Outcome.COMMITTED and missing:
                found.append(f"{each.name} is committed and lost {missing}")
            elif each.outcome is Outcome.REFUSED and len(missing) < len(there):
                found.append(f"{each.name} is refused, and some of it is there")
            elif 0 < len(missing) < len(there):
                found.append(f"{each.name} is there by half: {missing} is missing")
        return found

    def _wrong_reads(self) -> list[str]:
        found = []
        counted = {each.name for each in self._counted}
        for each in self._all:
            for name, seen in each.reads.items():
                for number in seen:
                    writer = self._writer.get((name, number))
                    if writer is None or writer.name not in counted:
                        found.append(f"{each.name} made a dirty read of {number} in {name}")
                if list(seen) != self._last.get(name, [])[: len(seen)]:
                    found.append(f"{each.name} read {list(seen)} of {name}, no beginning of it")
                elif seen:
                    writer = self._writer.get((name, seen[-1]))
                    if writer is not None and writer.appends[name][-1] != seen[-1]:
                        found.append(f"{each.name} read a part of {writer.name} in {name}")
        return found

    def _dependencies(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Return who comes after whom, and who overwrote what another one read."""
        ordered: dict[str, set[str]] = defaultdict(set)
        overtaken: dict[str, set[str]] = defaultdict(set)
        versions = {name: self._versions(name) for name in self._last}
        for chain in versions.values():
            for before, after in pairwise(chain):
                ordered[before].add(after)
        previous: dict[str, str] = {}
        for each in self._counted:
            if each.client in previous:
                ordered[previous[each.client]].add(each.name)
            previous[each.client] = each.name
            for name, seen in each.reads.items():
                chain = versions.get(name, [])
                place = 0
                if seen:
                    writer = self._writer[name, seen[-1]].name
                    place = chain.index(writer) + 1
                    if writer != each.name:
                        ordered[writer].add(each.name)
                if place < len(chain) and chain[place] != each.name:
                    overtaken[each.name].add(chain[place])
        return ordered, overtaken

    def _versions(self, name: str) -> list[str]:
        """Return the transactions that wrote a list, in order, each once."""
        return list(dict.fromkeys(self._writer[name, number].name for number in self._last[name]))


def _joined(one: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> dict[str, set[str]]:
    return {name: one.get(name, set()) | other.get(name, set()) for name in {*one, *other}}


def _cycles(steps: Mapping[str, set[str]], what: str) -> list[str]:
    """Return one cycle of a graph, if it has any."""
    done: set[str] = set()
    for start in list(steps):
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start}
        waiting = [iter(sorted(steps.get(start, ())))]
        while waiting:
            after = next(waiting[-1], None)
            if after is None:
                waiting.pop()
                done.add(path[-1])
                on_path.discard(path.pop())
            elif after in on_path:
                return [f"{what}: {' → '.join([*path[path.index(after) :], after])}"]
            elif after not in done:
                path.append(after)
                on_path.add(after)
                waiting.append(iter(sorted(steps.get(after, ()))))
    return []
