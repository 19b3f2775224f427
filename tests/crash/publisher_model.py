"""Many processes that commit, publish, tag and expire one table, at every call of which anything
may happen.

One seed is one run of real code over objects in memory: each actor is a process with handles of its
own, with the trouble of `tests.crash.troubled_world`.

What is checked, whenever the hint moves or a file is deleted, as a reader sees it at that moment:

    hint        names a document that is there, and never goes back
    newest      each snapshot that the named document lists has its list, its manifests, its data
                files and its vectors
    window      each snapshot of a document that the hint named a while ago has its list and its
                manifests, and its data files as long as its Version is retained
    published   what a process committed is in the document of the hint once it has published, and
                a location that it is given can be read
"""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import Final

import fastavro
import pytest
from pyroaring import BitMap64

from neve.catalog.lake import Lake
from neve.catalog.stored_table import StoredTable
from neve.engine.upkeep import Upkeep, retained
from neve.errors import Conflict, NotFound, OutcomeUnknown, Unavailable
from neve.iceberg.publisher import IcebergPublisher
from neve.iceberg.pyiceberg_bridge import read_manifest, read_manifest_list
from neve.model.data_file import VectorRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.sstable.puffin import write_puffin
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.crash.troubled_world import Objects, TroubledWorld, Violation, Weather
from tests.unit.iceberg.published_lake import SCHEMA
from tests.unit.manifest.builders import data_file

SNAPSHOTS_LISTED: Final = 3
DOCUMENTS_KEPT: Final = 3
COLLECT_EVERY: Final = 1
ROWS_PER_FILE: Final = 10
TURNS: Final = 3
COMMIT_TRIES: Final = 4
HINT: Final = "version-hint.text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many there are of each role; a writer publishes what it commits."""

    writers: int
    publishers: int
    taggers: int
    keepers: int


CREWS: Final = (
    Crew(writers=1, publishers=1, taggers=0, keepers=1),
    Crew(writers=2, publishers=0, taggers=1, keepers=1),
    Crew(writers=2, publishers=1, taggers=1, keepers=1),
    Crew(writers=1, publishers=2, taggers=1, keepers=2),
)
# The weather in which a publisher is most likely to be overtaken by all others.
DROWSY: Final = Weather(fault=0.0, death=0.0, sleep=0.05, sleep_at_slots=0.3, waking=0.05)


@cache
def template() -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """Return the id and the objects of a table that was just made."""
    store = MemoryStore()
    with Lake(store, clock=SimulatedClock(), ids=SeededIds(1)) as lake:
        table_id = lake.create_table("a.b", SCHEMA, ["id"]).table_id
    return table_id, tuple((info.path, store.get(info.path).payload) for info in store.list(""))


_remembered = lru_cache(maxsize=4_096)


@_remembered
def _records(_name: str, payload: bytes) -> list[dict[str, object]]:
    return [dict(each) for each in fastavro.reader(io.BytesIO(payload)) if isinstance(each, dict)]


@dataclass
class Ledger:
    """What happened in a run."""

    commits: int = 0
    publishes: int = 0
    overtaken: int = 0
    deleted: int = 0
    looks: int = 0
    named: list[int] = field(default_factory=list)
    """Documents that the hint named, in order."""


class WatchedStore(MemoryStore):
    """Objects at which a reader looks after every change that could harm it."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        tag = super().put_if_absent(path, payload)
        if tag is not None and path.endswith(HINT):
            self._on_change(path)
        return tag

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        found = super().put_if_match(path, payload, tag=tag)
        if found is not None and path.endswith(HINT):
            self._on_change(path)
        return found

    def delete(self, path: str) -> None:
        super().delete(path)
        self._on_change(path)


class Process:
    """One process's handles of the table."""

    def __init__(self, world: "World", name: str, *, is_calm: bool = False) -> None:
        objects = world.objects if is_calm else Objects(world, name)
        self.stored = StoredTable(
            objects,
            world.table_id,
            clock=SimulatedClock(),
            ids=world.ids_of_next_process(),
        )
        self.publisher: IcebergPublisher = self.stored.publisher
        parts = self.stored.parts(is_published=True)
        self.upkeep = Upkeep(parts)


class World(TroubledWorld):
    """One run: the objects, the actors, and the trouble between them."""

    objects: WatchedStore

    def __init__(
        self, seed: int, *, weather: Weather | None = None, crew: Crew | None = None
    ) -> None:
        super().__init__(seed, weather)
        self.crew = crew or self.rng.choice(CREWS)
        self.table_id, contents = template()
        self.objects = WatchedStore(self._look)
        for path, payload in contents:
            self.objects.put(path, payload)
        self.ledger = Ledger()
        self._serial = 0
        self._root = f"tables/{self.table_id}"
        self._calm = Process(self, "the reader", is_calm=True)

    def run(self) -> Ledger:
        """Let everybody act, then look; raises Violation."""
        crew = self.crew
        self._commit(self._calm)
        roles: list[tuple[str, Callable[[Process], None]]] = [
            *[("writer", self._write)] * crew.writers,
            *[("publisher", self._publish)] * crew.publishers,
            *[("tagger", self._tag)] * crew.taggers,
            *[("keeper", self._keep)] * crew.keepers,
        ]
        actors = {
            f"{role} {number}": partial(self._act, f"{role} {number}", turn)
            for number, (role, turn) in enumerate(roles)
        }
        self.let_act(actors)
        self._end()
        return self.ledger

    # Actors

    def _act(self, name: str, turn: Callable[[Process], None]) -> None:
        process = Process(self, name)
        for _ in range(TURNS):
            with suppress(Conflict, Unavailable, OutcomeUnknown):
                turn(process)
            if self.rng.random() < 0.2:
                process = Process(self, name)  # it ended, and was started again

    def _write(self, process: Process) -> None:
        number = self._commit(process)
        process.publisher.publish_once()
        self._check_published(number)

    def _publish(self, process: Process) -> None:
        number = process.stored.versions.head().current_version
        location = process.publisher.publish()
        self._check_published(number)
        name = location.rpartition("/")[2]
        given = int(name[1:].partition(".")[0])
        if given <= (self._hint() or 0) - DOCUMENTS_KEPT:
            return  # it slept on its way back: others published as many documents as are kept
        document = self._document(given)
        if document is None:
            raise Violation(f"{name} was given as the newest document and is gone")
        self._check(document, name, data_of=frozenset())

    def _tag(self, process: Process) -> None:
        work = process.stored.writer_state
        tags = work.tags()
        if tags and self.rng.random() < 0.5:
            work.remove_tag(self.rng.choice(sorted(tags)))
        else:
            head = process.stored.versions.head()
            with suppress(NotFound):  # it expired
                work.tag("t", self.rng.randint(head.oldest_version, head.current_version))
        process.publisher.publish_once()

    def _keep(self, process: Process) -> None:
        keep_last = self.rng.choice((1, 2))
        process.upkeep.expire(**retained(keep_last=keep_last, older_than_ms=None))
        process.upkeep.collect()

    def _commit(self, process: Process) -> int:
        """Append a file, mark a row, or merge two files."""
        versions = process.stored.versions
        for _ in range(COMMIT_TRIES):
            version = versions.snapshot_latest().version
            with suppress(Conflict):
                committed = versions.apply_version_edits([self._edit(version)])
                self.ledger.commits += 1
                return committed.snapshot.version.number
        raise Conflict("others were first")

    def _edit(self, version: Version) -> VersionEdit:
        self._serial += 1
        name = f"{self._serial:032x}"
        files = list(version.files.values())
        kind = self.rng.choice(("append", "append", "mark", "merge"))
        facts = replace(version.facts, summary={}, wal_segments=())
        markable = [file for file in files if file.deleted_count < ROWS_PER_FILE - 1]
        if kind == "mark" and markable:
            return self._mark(version, self.rng.choice(markable).path, name, facts)
        added = data_file(name, rows=ROWS_PER_FILE)
        self.objects.put(f"{self._root}/{added.path}", b"rows")
        if kind == "merge" and len(files) >= 2:
            merged = [file.path for file in self.rng.sample(files, 2)]
            facts = replace(facts, operation=Operation.REPLACE)
            return VersionEdit(
                base=version.number, facts=facts, added=(added,), removed=tuple(merged)
            )
        facts = replace(facts, operation=Operation.APPEND)
        return VersionEdit(base=version.number, facts=facts, added=(added,))

    def _mark(self, version: Version, path: str, name: str, facts: VersionFacts) -> VersionEdit:
        count = version.files[path].deleted_count + 1
        location = self._calm.publisher._folder.locate(path)
        payload, places = write_puffin({location: BitMap64(range(count))}, created_by="test")
        puffin = f"deletes/{name}.puffin"
        self.objects.put(f"{self._root}/{puffin}", payload)
        place = places[location]
        vector = VectorRef(path=puffin, offset=place.offset, length=place.length, cardinality=count)
        facts = replace(facts, operation=Operation.DELETE)
        return VersionEdit(base=version.number, facts=facts, vectors={path: vector})

    # What readers see

    def _look(self, changed: str) -> None:
        """Look as a reader would, right after a change."""
        self.ledger.looks += 1
        hint = self._hint()
        if hint is None:
            return
        if changed.endswith(HINT):
            if self.ledger.named and hint < self.ledger.named[-1]:
                raise Violation(f"the hint went back from {self.ledger.named[-1]} to {hint}")
            self.ledger.named.append(hint)
        elif changed.startswith(f"{self._root}/metadata/"):
            self.ledger.deleted += 1
        newest = self._named_document(hint)
        self._check(newest, f"the newest document, {hint},", data_of=None)
        kept = frozenset[int]()
        if changed.startswith((f"{self._root}/data/", f"{self._root}/deletes/")):
            kept = self._retained()
        for number in {each for each in self.ledger.named if hint - DOCUMENTS_KEPT < each < hint}:
            document = self._named_document(number)
            self._check(document, f"document {number}, named before {hint},", data_of=kept)

    def _hint(self) -> int | None:
        with suppress(NotFound):
            return int(self.objects.get(f"{self._root}/metadata/{HINT}").payload)
        return None

    def _document(self, number: int) -> dict[str, object] | None:
        with suppress(NotFound):
            path = f"{self._root}/metadata/v{number}.metadata.json"
            found: dict[str, object] = json.loads(self.objects.get(path).payload)
            return found
        return None

    def _named_document(self, number: int) -> dict[str, object]:
        found = self._document(number)
        if found is None:
            raise Violation(f"document {number} was named by the hint and is gone")
        return found

    def _check(
        self, document: dict[str, object], who: str, *, data_of: frozenset[int] | None
    ) -> None:
        """Find the metadata of each snapshot, and the data of some Versions, or of all."""
        for number, manifests in self._snapshots(document, who):
            if data_of is not None and number not in data_of:
                continue
            for path in self._live_paths(manifests):
                if not self._has(path):
                    raise Violation(f"{who} lists snapshot {number}, of which {path} is gone")

    def _snapshots(
        self, document: dict[str, object], who: str
    ) -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
        """Yield what a document lists, with the bytes of its manifests."""
        snapshots = document["snapshots"]
        assert isinstance(snapshots, list)
        for snapshot in snapshots:
            number = snapshot["snapshot-id"]
            manifests = []
            listed = self._fetch(snapshot["manifest-list"], f"{who} lists snapshot {number}")
            for record in _records(snapshot["manifest-list"], listed):
                name = str(record["manifest_path"])
                manifests.append((name, self._fetch(name, f"{who} lists snapshot {number}")))
            yield number, manifests

    def _live_paths(self, manifests: list[tuple[str, bytes]]) -> set[str]:
        paths = set()
        for name, payload in manifests:
            for entry in _records(name, payload):
                if entry["status"] != 2:
                    file = entry["data_file"]
                    assert isinstance(file, dict)
                    paths.add(self._path(file["file_path"]))
        return paths

    def _path(self, location: str) -> str:
        return f"tables/{location.partition('/tables/')[2]}"

    def _fetch(self, location: str, who: str) -> bytes:
        try:
            return self.objects.get(self._path(location)).payload
        except NotFound as error:
            name = location.rpartition("/")[2]
            raise Violation(f"{who}, of which {name} is gone") from error

    def _has(self, path: str) -> bool:
        with suppress(NotFound):
            self.objects.size(path)
            return True
        return False

    def _retained(self) -> frozenset[int]:
        versions = self._calm.stored.versions
        session = versions.store.read()
        head = versions.head_in(session)
        alone = versions.kept_alone_in(session, head)
        return frozenset((*alone, *range(head.oldest_version, head.current_version + 1)))

    def _check_published(self, number: int) -> None:
        self.ledger.publishes += 1
        hint = self._hint()
        if hint is None:
            raise Violation("it was published, and there is no hint")
        properties = self._named_document(hint)["properties"]
        assert isinstance(properties, dict)
        if int(properties["neve.version"]) < number:
            found = properties["neve.version"]
            raise Violation(f"version {number} was published, and the hint leads to {found}")

    # The end

    def _end(self) -> None:
        """Let what is late arrive, and go on using the table."""
        self.rng.shuffle(self.late)
        for arrive in self.late:
            with suppress(Unavailable, OutcomeUnknown):
                arrive()
        last = Process(self, "the last one", is_calm=True)
        for _ in range(DOCUMENTS_KEPT + 1):
            number = self._commit(last)
            last.publisher.publish()
            self._check_published(number)
            last.upkeep.expire(**retained(keep_last=2, older_than_ms=None))
            last.upkeep.collect()
            self._check_current(last)

    def _check_current(self, process: Process) -> None:
        """The newest snapshot holds the files of the current Version, and no others."""
        hint = self._hint()
        assert hint is not None
        document = self._named_document(hint)
        _, manifests = list(self._snapshots(document, "the newest document"))[-1]
        version = process.stored.versions.snapshot_latest().version
        expected = {f"{self._root}/{path}" for path in version.files}
        vectors = (file.vector for file in version.files.values())
        expected |= {f"{self._root}/{each.path}" for each in vectors if each is not None}
        if self._live_paths(manifests) != expected:
            raise Violation(f"the newest snapshot does not hold the files of {version.number}")


def keep_folders_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have so few snapshots listed and documents kept that a short run passes all of them."""
    monkeypatch.setattr("neve.iceberg.publisher.SNAPSHOTS_LISTED", SNAPSHOTS_LISTED)
    monkeypatch.setattr("neve.iceberg.publisher.DOCUMENTS_KEPT", DOCUMENTS_KEPT)
    monkeypatch.setattr("neve.iceberg.publisher._COLLECT_EVERY", COLLECT_EVERY)
    # Worlds hold the same few manifests; decoding them is most of the time.
    monkeypatch.setattr("neve.iceberg.snapshot_chain.read_manifest", _remembered(read_manifest))
    monkeypatch.setattr(
        "neve.iceberg.metadata_folder.read_manifest_list", _remembered(read_manifest_list)
    )
