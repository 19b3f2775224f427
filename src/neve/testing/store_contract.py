"""ObjectStoreContract: the rules of an ObjectStore, as tests that an implementation inherits.

    class TestMyStore(ObjectStoreContract):
        @pytest.fixture
        def store(self) -> ObjectStore:
            return MyStore()

The store must be empty. Each test names the rule of `neve.storage.object_store` that it checks;
STORAGE-2 and STORAGE-7 are about power loss, and are tested with a simulated disk.
"""

# ruff: noqa: D102  the name of a test is its sentence

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import ClassVar, Final, TypeVar

import pytest

from neve.errors import InvalidArgument, NotFound
from neve.storage.object_store import ObjectStore, link_object

T = TypeVar("T")

HOSTILE_PATHS: Final = (
    "",
    ".",
    "..",
    "/",
    "/absolute",
    "//host/share",
    "../outside",
    "a/../../outside",
    "a/..",
    "a/./b",
    "a//b",
    "a/",
    "nul\x00byte",
    "line\nbreak",
    "carriage\rreturn",
    "tab\tstop",
    "escape\x1b[31m",
    "delete\x7f",
    "next\x85line",
    "line\u2028separator",
    "back\\slash",
    "..\\outside",
    "half\ud800surrogate",
    "s" * 256,
    "ü" * 128,
    "/".join(["s" * 100] * 11),
    ".tmp-stolen",
    "a/.tmp-stolen",
)

HOSTILE_PREFIXES: Final = (
    "/",
    "/absolute",
    "../",
    "a/../",
    "a//b",
    "a/./",
    "nul\x00",
    "back\\slash",
)

# Names that are special in a shell, a URL, XML, SQL or a file system, but not here.
ODD_PATHS: Final = (
    "100%",
    "%2e%2e/%2F",
    "a b",
    "amp&lt;",
    "colon:semi;",
    "data/day=2026-11-15/part.parquet",
    "dots...",
    "e\u0301 combining",
    "emoji/😀.bin",
    "hash#tag",
    "plus+plus",
    "query?x=1",
    "quote'\"`",
    "s" * 255,
    "star*[x]{y}",
    "tilde~",
    "trailing dot.",
    "ü/ö",
    "日本語/ファイル",
)


class ObjectStoreContract:
    """Inherit it and add a fixture `store` to check every rule."""

    racers: ClassVar[int] = 8
    race_rounds: ClassVar[int] = 20
    increments_each: ClassVar[int] = 10

    # STORAGE-1 whole objects

    def test_what_was_put_is_what_is_read(self, store: ObjectStore) -> None:
        tag = store.put("a/object", b"some bytes")

        found = store.get("a/object")

        assert found.payload == b"some bytes"
        assert found.tag == tag
        assert store.size("a/object") == len(b"some bytes")

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        tag = store.put("empty", b"")

        assert store.get("empty").payload == b""
        assert store.get("empty").tag == tag
        assert store.size("empty") == 0
        assert store.get_range("empty", start=0, length=10) == b""
        assert [(info.path, info.size) for info in store.list("")] == [("empty", 0)]

    def test_five_megabytes_come_back_unchanged(self, store: ObjectStore) -> None:
        payload = bytes(range(256)) * (5 * 1024 * 4) + b"end"

        store.put("large", payload)
        created = store.put_if_absent("large too", payload)

        assert created is not None
        assert store.get("large").payload == payload
        assert store.get("large too").payload == payload
        assert store.size("large") == len(payload)
        assert (
            store.get_range("large", start=5_000_000, length=1_000) == payload[5_000_000:5_001_000]
        )

    def test_a_second_put_replaces_the_first(self, store: ObjectStore) -> None:
        old_tag = store.put("object", b"a longer first version")

        new_tag = store.put("object", b"second")

        assert store.get("object").payload == b"second"
        assert store.size("object") == len(b"second")
        assert new_tag != old_tag

    def test_readers_never_see_a_part_of_an_object(self, store: ObjectStore) -> None:
        versions = [bytes([letter]) * 50_000 for letter in b"abcdefgh"]
        store.put("object", versions[0])

        def write() -> list[bytes]:
            for version in versions:
                store.put("object", version)
            return []

        def read() -> list[bytes]:
            return [store.get("object").payload for _ in versions]

        with ThreadPoolExecutor(4) as threads:
            runs = [threads.submit(job) for job in (write, read, read, read)]
            seen = [payload for run in runs for payload in run.result()]

        assert set(seen) <= set(versions)

    def test_a_missing_object_is_not_found(self, store: ObjectStore) -> None:
        store.put("directory/present", b"x")

        for path in ("missing", "directory", "directory/missing", "directory/present/below"):
            for read in _reads(store, path):
                with pytest.raises(NotFound):
                    read()

    # Ranges

    def test_a_range_gives_exactly_its_bytes(self, store: ObjectStore) -> None:
        payload = bytes(range(100))
        store.put("object", payload)

        for start, length in ((0, 100), (0, 1), (99, 1), (10, 20)):
            found = store.get_range("object", start=start, length=length)
            assert found == payload[start : start + length]

    def test_a_range_is_short_only_at_the_end(self, store: ObjectStore) -> None:
        store.put("object", b"0123456789")

        assert store.get_range("object", start=8, length=100) == b"89"
        assert store.get_range("object", start=0, length=1 << 60) == b"0123456789"

    def test_a_range_past_the_end_is_empty(self, store: ObjectStore) -> None:
        store.put("object", b"0123456789")

        for start in (10, 11, 1_000_000, 1 << 62, 1 << 70):
            assert store.get_range("object", start=start, length=5) == b""

    def test_a_range_of_no_bytes_is_empty_but_asks_whether_the_object_exists(
        self, store: ObjectStore
    ) -> None:
        store.put("object", b"0123456789")

        assert store.get_range("object", start=3, length=0) == b""
        with pytest.raises(NotFound):
            store.get_range("missing", start=3, length=0)

    def test_a_negative_range_is_refused(self, store: ObjectStore) -> None:
        store.put("object", b"0123456789")

        for start, length in ((-1, 5), (0, -1), (-5, -5)):
            with pytest.raises(InvalidArgument):
                store.get_range("object", start=start, length=length)

    def test_a_second_name_is_independent_of_the_first(self, store: ObjectStore) -> None:
        store.put("a/object", b"some bytes")

        link_object(store, "a/object", "b/other")
        store.delete("a/object")

        assert store.get("b/other").payload == b"some bytes"
        with pytest.raises(NotFound):
            link_object(store, "a/object", "b/another")
        assert [info.path for info in store.list("")] == ["b/other"]

    # STORAGE-3 and STORAGE-4 one winner

    def test_only_the_first_create_wins(self, store: ObjectStore) -> None:
        tag = store.put_if_absent("slot", b"first")

        assert tag is not None
        assert store.put_if_absent("slot", b"second") is None
        assert store.get("slot").payload == b"first"
        assert store.get("slot").tag == tag

    def test_a_deleted_name_can_be_created_again(self, store: ObjectStore) -> None:
        store.put_if_absent("slot", b"first")
        store.delete("slot")

        assert store.put_if_absent("slot", b"second") is not None
        assert store.get("slot").payload == b"second"

    def test_only_the_right_tag_replaces(self, store: ObjectStore) -> None:
        first = store.put("head", b"one")
        second = store.put_if_match("head", b"two", tag=first)

        assert second is not None
        assert store.put_if_match("head", b"three", tag=first) is None
        assert store.get("head").payload == b"two"
        assert store.get("head").tag == second
        assert store.put_if_match("head", b"four", tag=second) is not None
        assert store.get("head").payload == b"four"

    def test_a_missing_object_matches_no_tag(self, store: ObjectStore) -> None:
        tag = store.put("head", b"one")
        store.delete("head")

        assert store.put_if_match("head", b"two", tag=tag) is None
        with pytest.raises(NotFound):
            store.get("head")

    def test_a_create_race_has_exactly_one_winner(self, store: ObjectStore) -> None:
        for round_number in range(self.race_rounds):
            path = f"slots/{round_number:04d}"
            claims = [f"writer {racer}, {path}".encode() for racer in range(self.racers)]

            tags = _race([partial(store.put_if_absent, path, claim) for claim in claims])

            winners = [claim for claim, tag in zip(claims, tags, strict=True) if tag is not None]
            assert len(winners) == 1
            assert store.get(path).payload == winners[0]

    def test_no_update_is_lost_among_racing_counters(self, store: ObjectStore) -> None:
        store.put("counter", b"0 no-writer 0")

        def count(racer: int) -> list[int]:
            return [_increment(store, racer, turn) for turn in range(self.increments_each)]

        reached = _race([partial(count, racer) for racer in range(self.racers)])

        expected = self.racers * self.increments_each
        assert sorted(itertools.chain.from_iterable(reached)) == list(range(1, expected + 1))
        assert store.get("counter").payload.startswith(b"%d " % expected)

    # STORAGE-5 tags

    def test_a_tag_changes_with_the_bytes(self, store: ObjectStore) -> None:
        tags = [store.put("object", b"version %d" % number) for number in range(20)]

        assert len(set(tags)) == len(tags)

    def test_an_unchanged_object_is_not_read_again(self, store: ObjectStore) -> None:
        tag = store.put("head", b"one")

        assert store.get_if_changed("head", tag=tag) is None

    def test_a_changed_object_is_read(self, store: ObjectStore) -> None:
        old_tag = store.put("head", b"one")
        new_tag = store.put("head", b"two")

        found = store.get_if_changed("head", tag=old_tag)

        assert found is not None
        assert found.payload == b"two"
        assert found.tag == new_tag

    def test_asking_for_changes_of_a_missing_object_is_not_found(self, store: ObjectStore) -> None:
        tag = store.put("head", b"one")
        store.delete("head")

        with pytest.raises(NotFound):
            store.get_if_changed("head", tag=tag)

    # STORAGE-6 listings

    def test_an_empty_store_lists_nothing(self, store: ObjectStore) -> None:
        assert list(store.list("")) == []
        assert list(store.list("no/such/prefix")) == []

    def test_a_listing_ascends_by_the_bytes_of_the_whole_path(self, store: ObjectStore) -> None:
        paths = ["B", "a b", "a-b", "a.b", "a/b", "a/c/d", "a/é", "a0", "aé", "b", "日", "😀"]
        for path in reversed(paths):
            store.put(path, path.encode())

        found = [(info.path, info.size) for info in store.list("")]

        assert found == [(path, len(path.encode())) for path in paths]
        assert paths == sorted(paths, key=str.encode)

    def test_a_prefix_is_a_beginning_of_text_not_a_directory(self, store: ObjectStore) -> None:
        for path in ("log", "logs/1", "logs/2", "logs-old/1", "lo", "m/logs/3"):
            store.put(path, b"")

        def listed(prefix: str) -> list[str]:
            return [info.path for info in store.list(prefix)]

        assert listed("log") == ["log", "logs-old/1", "logs/1", "logs/2"]
        assert listed("logs") == ["logs-old/1", "logs/1", "logs/2"]
        assert listed("logs/") == ["logs/1", "logs/2"]
        assert listed("logs/2") == ["logs/2"]
        assert listed("m/lo") == ["m/logs/3"]
        assert listed("logs/3") == []

    def test_a_listing_begins_behind_a_path_that_need_not_exist(self, store: ObjectStore) -> None:
        paths = ["a-b", "a/1", "a/2", "a/3", "a0"]
        for path in paths:
            store.put(path, b"")

        def listed(prefix: str, after: str) -> list[str]:
            return [info.path for info in store.list(prefix, after=after)]

        assert listed("", "a/2") == ["a/3", "a0"]
        assert listed("a/", "a/1") == ["a/2", "a/3"]
        assert listed("a/", "a/1.5") == ["a/2", "a/3"]
        assert listed("", "a-b") == ["a/1", "a/2", "a/3", "a0"]
        assert listed("a/", "A") == ["a/1", "a/2", "a/3"]
        assert listed("a/", "b") == []

    def test_a_long_listing_is_complete(self, store: ObjectStore) -> None:
        paths = [f"many/{number:05d}" for number in range(1_100)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda path: store.put(path, b"x"), paths))

        assert [info.path for info in store.list("many/")] == paths
        assert [info.path for info in store.list("many/", after=paths[1_050])] == paths[1_051:]

    def test_deleted_objects_are_not_listed(self, store: ObjectStore) -> None:
        for path in ("a", "b", "c"):
            store.put(path, b"")
        store.delete("b")

        assert [info.path for info in store.list("")] == ["a", "c"]

    # Deleting

    def test_deleting_twice_is_no_error(self, store: ObjectStore) -> None:
        store.put("object", b"x")

        store.delete("object")
        store.delete("object")
        store.delete("never/was")

        with pytest.raises(NotFound):
            store.get("object")

    # Names

    def test_odd_names_are_only_names(self, store: ObjectStore) -> None:
        for path in ODD_PATHS:
            store.put(path, path.encode())

        assert [info.path for info in store.list("")] == sorted(ODD_PATHS)
        for path in ODD_PATHS:
            assert store.get(path).payload == path.encode()
            assert store.put_if_absent(path, b"other") is None
            store.delete(path)
        assert list(store.list("")) == []

    @pytest.mark.parametrize("hostile", HOSTILE_PATHS, ids=ascii)
    def test_a_hostile_name_is_refused(self, store: ObjectStore, hostile: str) -> None:
        tag = store.put("witness", b"unchanged")

        for call in _reads(store, hostile) + _writes(store, hostile, tag):
            with pytest.raises(InvalidArgument):
                call()

        assert [info.path for info in store.list("")] == ["witness"]
        assert store.get("witness").tag == tag

    @pytest.mark.parametrize("hostile", HOSTILE_PREFIXES, ids=ascii)
    def test_a_hostile_prefix_is_refused(self, store: ObjectStore, hostile: str) -> None:
        with pytest.raises(InvalidArgument):
            list(store.list(hostile))

    @pytest.mark.parametrize("path", ["LOCK", "a/LOCK"])
    def test_the_name_of_locks_is_no_object(self, store: ObjectStore, path: str) -> None:
        tag = store.put("witness", b"unchanged")

        for call in [*_reads(store, path), *_writes(store, path, tag)]:
            with pytest.raises(InvalidArgument):
                call()

        assert [info.path for info in store.list("")] == ["witness"]
        assert [info.path for info in store.list(path)] == []

    # Where it is

    def test_the_location_is_a_uri(self, store: ObjectStore) -> None:
        scheme, separator, _ = store.location.partition("://")

        assert scheme in {"file", "s3", "gs", "az", "memory"}
        assert separator


def _reads(store: ObjectStore, path: str) -> list[Callable[[], object]]:
    return [
        lambda: store.get(path),
        lambda: store.get_range(path, start=0, length=1),
        lambda: store.size(path),
    ]


def _writes(store: ObjectStore, path: str, tag: str) -> list[Callable[[], object]]:
    return [
        lambda: store.put(path, b"x"),
        lambda: store.put_if_absent(path, b"x"),
        lambda: store.put_if_match(path, b"x", tag=tag),
        lambda: store.get_if_changed(path, tag=tag),
        lambda: store.delete(path),
    ]


def _race(jobs: list[Callable[[], T]]) -> list[T]:
    """Start all jobs at the same moment, each in its own thread, and return their results."""
    start = Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T:
        start.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(run, jobs))


def _increment(store: ObjectStore, racer: int, turn: int) -> int:
    """Add one with compare and swap; return the number that this writer stored."""
    while True:
        found = store.get("counter")
        number = int(found.payload.split()[0]) + 1
        claim = b"%d writer-%d %d" % (number, racer, turn)
        if store.put_if_match("counter", claim, tag=found.tag) is not None:
            return number
