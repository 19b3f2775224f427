"""The content of a simulated disk: durable bytes and names, and those a power cut may lose.

    file        durable bytes   +  unsynced effects, in order: write, truncate, allocate
    directory   durable names   +  unsynced changes of names, in order, kept by the disk

After a power cut any subset of the unsynced effects is left. Of a write that is all, nothing, a
part cut at any byte, some of its sectors, or only the new size of the file, with zeros.

A change of names is atomic: a rename leaves the old name or the new one. Changes of one name keep
their order, so the first of two cannot be lost alone; changes of different names can be lost in any
combination. A rename between two directories is durable when both were synced. A file without a
name is gone, even if its bytes were synced.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

SECTOR_BYTES: Final = 512
_EVEN_ODDS: Final = 0.5


class Survival(StrEnum):
    """How much unsynced content a power cut leaves."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    ONLY_BYTES = "only bytes"
    ONLY_NAMES = "only names"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes written at an offset."""

    offset: int
    payload: bytes

    def apply(self, image: bytearray) -> None:
        """Write the bytes into a file, after zeros if it is shorter."""
        _grow(image, self.offset)
        image[self.offset : self.offset + len(self.payload)] = self.payload


@dataclass(frozen=True, slots=True)
class Resized:
    """A new size: exactly, or at least."""

    length: int
    may_cut: bool

    def apply(self, image: bytearray) -> None:
        """Lengthen a file with zeros, or shorten it."""
        _grow(image, self.length)
        if self.may_cut:
            del image[self.length :]


Effect = Written | Resized


@dataclass(slots=True, eq=False)
class SimulatedFile:
    """One inode: what processes see, what is durable, and the effects in between."""

    modified_ms: int
    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Effect] = field(default_factory=list)
    lock_holder: int | None = None

    def change(self, effect: Effect, *, now_ms: int) -> None:
        """Make an effect visible to processes, but not durable."""
        effect.apply(self.content)
        self.unsynced.append(effect)
        self.modified_ms = now_ms

    def sync(self) -> None:
        """Make every effect durable."""
        for effect in self.unsynced:
            effect.apply(self.durable)
        self.unsynced.clear()

    def sync_only(self, written: Written) -> None:
        """Make the bytes of one write durable, and the size of the file."""
        for effect in self.unsynced:
            if effect is written or isinstance(effect, Resized):
                effect.apply(self.durable)
        self.unsynced = [
            effect
            for effect in self.unsynced
            if effect is not written and not isinstance(effect, Resized)
        ]

    def lose_unsynced(self) -> None:
        """Lose what was not synced, although processes still see it: a sync failed.

        Real file systems then mark the pages clean, and the next sync reports success.
        """
        self.unsynced.clear()

    def after_power_cut(self, rng: Random, survival: Survival) -> "SimulatedFile":
        """Return the file as it is after a power cut."""
        image = bytearray(self.durable)
        for effect in self.unsynced:
            _apply_what_survived(effect, image, rng, survival)
        return SimulatedFile(modified_ms=self.modified_ms, content=image, durable=bytearray(image))


@dataclass(slots=True, eq=False)
class SimulatedDirectory:
    """Names in a directory: as processes see them, and as they are durable."""

    entries: "dict[str, SimulatedFile | SimulatedDirectory]" = field(default_factory=dict)
    durable: "dict[str, SimulatedFile | SimulatedDirectory]" = field(default_factory=dict)


Node = SimulatedFile | SimulatedDirectory


@dataclass(slots=True, eq=False)
class NameChange:
    """An atomic change of one or two names; `awaiting` are directories not synced since."""

    edits: tuple[tuple[SimulatedDirectory, str, Node | None], ...]
    awaiting: list[SimulatedDirectory]


def surviving_tree(
    root: SimulatedDirectory, changes: list[NameChange], rng: Random, survival: Survival
) -> SimulatedDirectory:
    """Return the tree as it is after a power cut; the original does not change."""
    names = _surviving_names(changes, rng, survival)
    # Files keep their identity, so that two names of one file still share it. Directories have
    # one name each. Dicts keep the order of insertion, so the choices do not depend on hashes.
    files: dict[SimulatedFile, SimulatedFile] = {}
    found = SimulatedDirectory()
    pending = [(root, found)]
    while pending:
        directory, copy = pending.pop()
        for name, node in sorted(names.get(directory, directory.durable).items()):
            if isinstance(node, SimulatedDirectory):
                below = SimulatedDirectory()
                copy.entries[name] = below
                pending.append((node, below))
            else:
                if node not in files:
                    files[node] = node.after_power_cut(rng, survival)
                copy.entries[name] = files[node]
        copy.durable = dict(copy.entries)
    return found


def _surviving_names(
    changes: list[NameChange], rng: Random, survival: Survival
) -> dict[SimulatedDirectory, dict[str, Node]]:
    names: dict[SimulatedDirectory, dict[str, Node]] = {}
    lost: set[tuple[SimulatedDirectory, str]] = set()
    likelihood = rng.choice((0.2, 0.5, 0.8))
    for change in changes:
        touched = {(directory, name) for directory, name, _ in change.edits}
        if change.awaiting and (
            not touched.isdisjoint(lost) or not _name_survives(rng, survival, likelihood)
        ):
            lost |= touched
            continue
        for directory, name, node in change.edits:
            view = names.setdefault(directory, dict(directory.durable))
            if node is None:
                view.pop(name, None)
            else:
                view[name] = node
    return names


def _name_survives(rng: Random, survival: Survival, likelihood: float) -> bool:
    match survival:
        case Survival.EVERYTHING | Survival.ONLY_NAMES:
            return True
        case Survival.NOTHING | Survival.ONLY_BYTES:
            return False
        case Survival.RANDOM:
            return rng.random() < likelihood


def _apply_what_survived(effect: Effect, image: bytearray, rng: Random, survival: Survival) -> None:
    match survival:
        case Survival.EVERYTHING | Survival.ONLY_BYTES:
            effect.apply(image)
        case Survival.NOTHING | Survival.ONLY_NAMES:
            pass
        case Survival.RANDOM if isinstance(effect, Written):
            _tear(effect, image, rng)
        case Survival.RANDOM:
            if rng.random() < _EVEN_ODDS:
                effect.apply(image)


def _tear(effect: Written, image: bytearray, rng: Random) -> None:
    """Apply a random part of a write."""
    length = len(effect.payload)
    match rng.randrange(7):
        case 0:
            pass
        case 1 | 2:
            effect.apply(image)
        case 3:
            _grow(image, effect.offset + length)
        case 4:
            Written(effect.offset, effect.payload[: rng.randint(0, length)]).apply(image)
        case 5:
            first = rng.randint(0, length)
            Written(effect.offset + first, effect.payload[first:]).apply(image)
        case _:
            for start in range(0, length, SECTOR_BYTES):
                if rng.random() < _EVEN_ODDS:
                    sector = effect.payload[start : start + SECTOR_BYTES]
                    Written(effect.offset + start, sector).apply(image)


def _grow(image: bytearray, length: int) -> None:
    if len(image) < length:
        image.extend(bytes(length - len(image)))
