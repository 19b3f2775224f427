"""Files made of pieces: the same object, whichever way a store takes them."""

from pathlib import Path

import pytest

from neve.errors import LimitExceeded
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore, TakesPieces, put_file

PIECES = (b"ab", memoryview(b"cd"), b"", memoryview(b"e"))


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return LocalStore(str(tmp_path)) if request.param == "disk" else MemoryStore()


def test_pieces_become_one_object(store: ObjectStore) -> None:
    put_file(store, "a/b", PIECES)
    put_file(store, "a/b", (*PIECES, b"f"))

    assert store.get("a/b").payload == b"abcdef"


def test_a_file_without_pieces_is_empty(store: ObjectStore) -> None:
    put_file(store, "a", ())

    assert store.get("a").payload == b""


def test_an_object_in_pieces_has_the_tag_of_its_bytes(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert isinstance(store, TakesPieces)
    put_file(store, "a", PIECES)

    assert store.put("b", b"abcde") == store.get("a").tag


def test_pieces_that_are_too_much_together_are_refused(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), object_bytes_max=4)

    with pytest.raises(LimitExceeded):
        put_file(store, "a", PIECES)

    assert list(store.list("")) == []
