"""What a checkpoint of a table's version store holds: some Versions in full, and edits between.

Kept in full: the oldest retained one, older ones that tags or leases kept when their neighbours
expired, every thousandth, tagged ones, and the newest. So reading the newest Version costs the
edits since the checkpoint, and reading any retained one at most a thousand.
"""

from typing import Final

from neve.manifest.table_head import (
    HEAD_KEY,
    STATE_PREFIX,
    TAG_PREFIX,
    TableHead,
    state_key,
    version_key,
)
from neve.manifest.version_codec import decode_edit, decode_version, encode_version
from neve.model.version import Version, apply_edit

_FULL_EVERY: Final = 1_000


def fold_versions(entries: dict[str, bytes]) -> dict[str, bytes]:
    """Add the newest Version in full and drop full ones that are no longer worth their room."""
    payload = entries.get(HEAD_KEY)
    if payload is None:
        return entries
    head = TableHead.decode(payload, path=HEAD_KEY)
    tagged = {int(value) for key, value in entries.items() if key.startswith(TAG_PREFIX)}
    newest = _newest(entries, head.current_version)
    kept = {
        key: value
        for key, value in entries.items()
        if not key.startswith(STATE_PREFIX)
        or _is_worth_keeping(int(key.removeprefix(STATE_PREFIX)), head, tagged)
    }
    kept[state_key(newest.number)] = encode_version(newest)
    return kept


def tag_value(number: int) -> bytes:
    """Bytes of a tag: the number of its Version."""
    return str(number).encode()


def _newest(entries: dict[str, bytes], number: int) -> Version:
    """Fold the newest Version out of the nearest full one and the edits since."""
    at = number
    while at > 0 and state_key(at) not in entries:
        at -= 1
    version: Version | None = None
    if at > 0:
        version = decode_version(entries[state_key(at)], path=state_key(at))
    while at < number:
        at += 1
        version = apply_edit(version, decode_edit(entries[version_key(at)], path=version_key(at)))
    assert version is not None
    return version


def _is_worth_keeping(number: int, head: TableHead, tagged: set[int]) -> bool:
    return number in tagged or number <= head.oldest_version or number % _FULL_EVERY == 0
