"""What a checkpoint of a table's version store holds: some Versions in full, and edits between.

Kept in full: the oldest retained one, older ones that tags or leases kept when their neighbours
expired, every thousandth, and the newest. So reading the newest Version costs the edits since the
checkpoint, and reading any retained one at most a thousand. A full one that is there already stays
as it is, byte for byte, and so do the records of files that no edit since has touched.
"""

from collections.abc import Iterator
from typing import Final

from neve.errors import Corruption
from neve.manifest.table_head import (
    HEAD_KEY,
    STATE_PREFIX,
    TableHead,
    read_number,
    state_key,
    version_key,
)
from neve.manifest.version_codec import read_edit
from neve.manifest.version_fold import FoldedState

_FULL_EVERY: Final = 1_000


def fold_versions(entries: dict[str, bytes]) -> dict[str, bytes]:
    """Add Versions in full that are worth their room, and drop those that no longer are."""
    payload = entries.get(HEAD_KEY)
    if payload is None:
        return entries
    head = TableHead.decode(payload, path=HEAD_KEY)
    if head.dropped and version_key(head.current_version) not in entries:
        # It is forgotten but for its head; full copies were left by processes that had not heard.
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
    """Bytes of a tag: the number of its Version."""
    return str(number).encode()


def _states_since_a_full_one(entries: dict[str, bytes], number: int) -> Iterator[FoldedState]:
    """Fold the newest Version out of the nearest full one; gives each on the way."""
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
