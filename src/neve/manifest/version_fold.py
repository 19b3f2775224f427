"""Folding of a table's version store for a checkpoint: some Versions in full, and edits between.

These Versions are kept in full: the oldest retained one, older ones that tags or leases kept when
their neighbours expired, every thousandth, and the newest. So reading the newest Version costs the
edits since the checkpoint, and reading any retained one at most a thousand. An existing full
Version stays as it is, byte for byte, and so do the records of files that no edit since touched.

Edits are folded into the stored message of a Version: folding values would decode and encode every
fact of every file again. The bytes are those that `encode_version` returns for the same Version.
Facts of files are checked when a Version is read, and before it is written.
"""

from collections.abc import Iterator
from typing import Final

from neve.errors import Corruption
from neve.manifest import mrub_pb2
from neve.manifest.mrub import encode_mrub
from neve.manifest.table_head import (
    HEAD_KEY,
    STATE_PREFIX,
    TableHead,
    read_number,
    state_key,
    version_key,
)
from neve.manifest.version_codec import EditMessage, manifest_in, manifest_of, read_edit
from neve.model.version import VersionFacts


class FoldedState:
    """A Version that edits are applied to, one after another."""

    def __init__(self) -> None:
        self.number = 0
        self._next_row_id = 0
        self._first_row_id = 0
        self._facts: VersionFacts | None = None
        self._stored: bytes | None = None
        self._files = mrub_pb2.Manifest()  # only its files count
        self._positions: dict[str, int] = {}
        self._dead: list[int] = []

    @classmethod
    def read(cls, frame: bytes, *, path: str) -> "FoldedState":
        """Start from a Version stored in full; raises Corruption."""
        state = cls()
        state._files = manifest_in(frame, mrub_pb2.FORM_STATE, path)
        state.number = state._files.snapshot_id
        state._next_row_id = state._files.next_row_id
        state._stored = frame
        state._count_positions()
        if len(state._positions) < len(state._files.data_files):
            raise Corruption("a version names a file twice", path=path)
        return state

    def apply(self, edit: EditMessage) -> None:
        """Advance to the next Version; raises Corruption when the edit does not fit."""
        if edit.base != self.number:
            raise Corruption(f"an edit of version {edit.base} cannot follow version {self.number}")
        self.number += 1
        self._first_row_id = self._next_row_id
        self._facts = edit.facts
        self._stored = None
        for path in edit.removed:
            self._dead.append(self._position_of(path, "removes"))
            del self._positions[path]
        for path, vector in edit.vectors.items():
            ref = self._files.data_files[self._position_of(path, "marks rows of")]
            ref.dv_path = vector.path
            ref.dv_offset = vector.offset
            ref.dv_length = vector.length
            ref.dv_cardinality = vector.cardinality
        for added in edit.added:
            if added.path in self._positions:
                raise Corruption(f"version {self.number} adds a file twice", path=added.path)
            self._positions[added.path] = len(self._files.data_files)
            ref = self._files.data_files.add()
            ref.CopyFrom(added)
            ref.ClearField("status")  # it exists from now on
            if ref.HasField("first_row_id"):
                self._next_row_id = max(self._next_row_id, ref.first_row_id + ref.num_rows)

    def encode(self) -> bytes:
        """Return the bytes of the Version in full."""
        if self._stored is not None:
            return self._stored
        assert self._facts is not None, "a Version begins with an edit"
        for position in sorted(self._dead, reverse=True):
            del self._files.data_files[position]
        if self._dead:
            self._dead = []
            self._count_positions()
        whole = manifest_of(self._facts, number=self.number, parent=self.number - 1 or None)
        whole.form = mrub_pb2.FORM_STATE
        whole.next_row_id = self._next_row_id
        whole.first_row_id = self._first_row_id
        whole.data_files.MergeFrom(self._files.data_files)
        self._stored = encode_mrub(whole)
        return self._stored

    def _position_of(self, path: str, verb: str) -> int:
        position = self._positions.get(path)
        if position is None:
            raise Corruption(f"version {self.number} {verb} a file that is not there", path=path)
        return position

    def _count_positions(self) -> None:
        self._positions = {ref.path: at for at, ref in enumerate(self._files.data_files)}


_FULL_EVERY: Final = 1_000


def fold_versions(entries: dict[str, bytes]) -> dict[str, bytes]:
    """Add full Versions that are worth their space, and drop those that no longer are."""
    payload = entries.get(HEAD_KEY)
    if payload is None:
        return entries
    head = TableHead.decode(payload, path=HEAD_KEY)
    if head.dropped and version_key(head.current_version) not in entries:
        # Only its head is left; full copies are from processes that did not know yet.
        return {key: value for key, value in entries.items() if not key.startswith(STATE_PREFIX)}
    folded = {
        key: value
        for key, value in entries.items()
        if not key.startswith(STATE_PREFIX)
        or _is_worth_keeping(read_number(key, prefix=STATE_PREFIX), head)
    }
    for state in _states_since_a_full_one(entries, head.current_version):
        if state.number == head.current_version or _is_worth_keeping(state.number, head):
            folded[state_key(state.number)] = state.encode()
    return folded


def tag_value(number: int) -> bytes:
    """Return the bytes of a tag: the number of its Version."""
    return str(number).encode()


def _states_since_a_full_one(entries: dict[str, bytes], number: int) -> Iterator[FoldedState]:
    """Fold from the nearest full Version to the newest one; yield each on the way."""
    at = number
    while at > 0 and state_key(at) not in entries:
        at -= 1
    state = FoldedState()
    if at > 0:
        state = FoldedState.read(entries[state_key(at)], path=state_key(at))
        yield state
    for made in range(at + 1, number + 1):
        key = version_key(made)
        if key not in entries:
            raise Corruption(f"the edit of version {made} is missing", path=key)
        state.apply(read_edit(entries[key], path=key))
        yield state


def _is_worth_keeping(number: int, head: TableHead) -> bool:
    return number <= head.oldest_version or number % _FULL_EVERY == 0
