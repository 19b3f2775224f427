"""The probe accepts stores that keep their promises and names the promise that others break."""

from collections.abc import Iterator

import pytest

from neve.errors import Unavailable
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectInfo
from neve.storage.open_store import probe_conditional_writes, probe_listing
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault
from neve.testing.simulated_clock import SeededIds


class IgnoresCreate(MemoryStore):
    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        return self.put(path, payload)


class IgnoresTags(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        del tag
        return self.put(path, payload)


class IgnoresTagsOfMissingObjects(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        if any(info.path == path for info in self.list(path)):
            return super().put_if_match(path, payload, tag=tag)
        return self.put(path, payload)


class RefusesRightTags(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> None:
        del path, payload, tag


class RefusesToCreate(MemoryStore):
    def put_if_absent(self, path: str, payload: bytes) -> None:
        del path, payload


class SaysNoButWrites(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        if super().put_if_match(path, payload, tag=tag) is not None:
            return self.get(path).tag
        self.put(path, payload)
        return None


class ListsByDirectory(MemoryStore):
    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        found = super().list(prefix, after=after)
        return iter(sorted(found, key=lambda info: info.path.split("/")))


@pytest.mark.parametrize(
    ("store", "broken"),
    [
        (IgnoresCreate(), "If-None-Match"),
        (IgnoresTags(), "If-Match"),
        (IgnoresTagsOfMissingObjects(), "missing object"),
        (RefusesRightTags(), "its tag was right"),
        (RefusesToCreate(), "refused to create"),
        (SaysNoButWrites(), "other bytes"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_a_broken_promise_is_named_with_what_to_do(store: MemoryStore, broken: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        probe_conditional_writes(store, SeededIds())

    assert broken in refusal.value.message
    assert "lost" in refusal.value.message
    assert refusal.value.hint
    assert list(store.list("")) == []


def test_a_store_that_keeps_conditions_is_accepted_and_left_empty() -> None:
    store = MemoryStore()

    probe_conditional_writes(store, SeededIds())

    assert list(store.list("")) == []


def test_two_probes_at_once_do_not_disturb_each_other() -> None:
    ids = SeededIds()
    store = MemoryStore()
    nested = FaultyStore(store, before_call=lambda _: probe_conditional_writes(store, ids))

    probe_conditional_writes(nested, ids)

    assert list(store.list("")) == []


def test_a_probe_that_cannot_clean_up_still_says_what_it_found() -> None:
    plan = [PlannedFault(fault=Fault.BEFORE, operation=Operation.DELETE, times=9)]

    with pytest.raises(Unavailable, match="If-None-Match"):
        probe_conditional_writes(FaultyStore(IgnoresCreate(), plan), SeededIds())


def test_a_store_that_sorts_is_accepted_and_left_empty() -> None:
    store = MemoryStore()

    probe_listing(store, SeededIds())

    assert list(store.list("")) == []


def test_a_store_that_lists_by_directory_is_refused() -> None:
    store = ListsByDirectory()

    with pytest.raises(Unavailable, match="ascending order") as refusal:
        probe_listing(store, SeededIds())

    assert "listing=unordered" in str(refusal.value)
    assert list(store.list("")) == []
