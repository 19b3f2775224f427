"""Whether a store keeps the promises that commits stand on, found out by trying.

Some servers accept `If-None-Match` and `If-Match` and ignore them: every write succeeds, two
writers both believe they won, and one commit is gone. Some list out of order, and a listing that
begins behind a name then misses objects. Both are to be found out before the first commit.

The probe writes objects named `probe-<id>` and deletes them; a crash can leave one behind, which
anybody may delete.
"""

from contextlib import suppress

from neve.errors import NeveError, OutcomeUnknown, Phrase, Unavailable, Wording
from neve.storage.clock import IdSource
from neve.storage.object_store import ObjectStore

_HINT = "Use a store with conditional writes, such as S3, or a directory on a local disk"


def probe_conditional_writes(store: ObjectStore, ids: IdSource) -> None:
    """Raise Unavailable when the store ignores a condition, naming the one it ignored."""
    path = f"probe-{ids.uuid()}"
    # Never equal, so that no answer can be taken for another's.
    first, second, third, fourth = (f"neve probe {n} {ids.uuid()}".encode() for n in range(4))
    try:
        created = store.put_if_absent(path, first)
        if created is None:
            raise _refused(store, "refused to create an object that was not there")
        if store.put_if_absent(path, second) is not None:
            raise _ignored(store, "create only when absent (If-None-Match: *)")
        replaced = store.put_if_match(path, third, tag=created)
        if replaced is None:
            raise _refused(store, "refused to replace an object although its tag was right")
        if replaced == created:
            raise _refused(store, "gave the same tag to different bytes")
        if store.put_if_match(path, fourth, tag=created) is not None:
            raise _ignored(store, "replace only when the tag matches (If-Match)")
        if store.get(path).payload != third:
            raise _refused(store, "answered as if it kept conditions, but holds other bytes")
        store.delete(path)
        if store.put_if_match(path, first, tag=replaced) is not None:
            raise _ignored(store, "replace only what is there (If-Match on a missing object)")
    finally:
        _sweep(store, path)


def probe_listing(store: ObjectStore, ids: IdSource) -> None:
    """Raise Unavailable when the store does not list in ascending order of the whole path."""
    root = f"probe-{ids.uuid()}"
    # By the bytes of the whole path `-` and `.` come before `/`; by directories they come after.
    paths = [f"{root}/a-b", f"{root}/a.b", f"{root}/a/b", f"{root}/a0"]
    try:
        for path in paths:
            store.put(path, b"neve probe")
        listed = [info.path for info in store.list(f"{root}/")]
        behind_first = [info.path for info in store.list(f"{root}/", after=paths[0])]
        if listed != paths or behind_first != paths[1:]:
            raise Unavailable(
                f"{store.location} does not list objects in ascending order of their paths, so a "
                "listing can miss objects that exist",
                hint=Wording(Phrase.UNORDERED_LISTING),
            )
    finally:
        for path in paths:
            _sweep(store, path)


def _sweep(store: ObjectStore, path: str) -> None:
    # What the probe found matters more than a probe object left behind.
    with suppress(Unavailable, OutcomeUnknown):
        store.delete(path)


def _ignored(store: ObjectStore, condition: str) -> NeveError:
    return Unavailable(
        f"{store.location} ignores the condition to {condition}: two writers would both be told "
        "that they committed, and one commit would be lost",
        hint=_HINT,
    )


def _refused(store: ObjectStore, what: str) -> NeveError:
    return Unavailable(
        f"{store.location} {what}: commits to it would fail or be lost",
        hint=_HINT,
    )
