"""What is true of a table at this moment, and the promises each commit and each deletion must keep.

The truth follows the objects themselves: a segment that is created is a commit, whoever knows of it
already. So a promise is checked at the very call that would break it:

    a segment is created    Versions follow each other without gap or fork; each job is committed
                            once, by the epoch it was made in; the rows are those before, changed by
                            this job alone; every file it brings is there; tagged Versions stay,
                            and so does what consumers have not read; no position moves back
    a file is deleted       no retained or tagged Version reaches it, no live intent announced it,
                            no reader who may rely on a lease reads it
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap64

from neve.manifest.documents import decode_segment
from neve.manifest.json_document import Document
from neve.manifest.leases import HeldLease
from neve.manifest.table_garbage import paths_of
from neve.manifest.table_head import (
    CONSUMER_PREFIX,
    GARBAGE_PREFIX,
    HEAD_KEY,
    INTENT_PREFIX,
    STATE_PREFIX,
    TAG_PREFIX,
    VERSION_PREFIX,
    TableHead,
)
from neve.manifest.version_codec import decode_edit
from neve.model.data_file import VectorRef
from neve.model.version import Operation, Version, apply_edit
from neve.storage.memory_store import MemoryStore
from neve.testing.model_rows import ModelRows
from tests.crash.troubled_world import SEGMENTS, Violation

FILES: Final = ("data/", "deletes/")
Rows = dict[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one attempt of a job wants to do to the table."""

    job_id: str
    attempt: str
    """Its own name, for a job may be tried again."""
    effect: Mapping[bytes, bytes | None] = field(default_factory=dict)
    """Rows by key, None for a deleted one; nothing for a rewrite."""
    restores: int | None = None
    epoch: int | None = None

    @property
    def prefixes(self) -> tuple[str, str]:
        """Beginnings of the names of its files."""
        return (f"data/{self.job_id}-", f"deletes/{self.job_id}-")


def attempt_of(path: str) -> str:
    """Name of the attempt that wrote a file."""
    job_id, number = path.partition("/")[2].partition(".parquet")[0].split("-")[:2]
    return f"{job_id}-{number}"


class KeptRows(ModelRows):
    """Rows of all files, which outlive the files: deleting one is noticed, not suffered."""

    def copy(self) -> "KeptRows":
        copied = KeptRows()
        copied._files = dict(self._files)
        copied._positions = dict(self._positions)
        copied._vectors = dict(self._vectors)
        return copied

    def name_vectors(self, path: str, whole: Mapping[str, BitMap64]) -> dict[str, VectorRef]:
        """Keep whole vectors under a name that the caller chose."""
        refs = {
            data_path: VectorRef(path=path, offset=offset, length=1, cardinality=len(positions))
            for offset, (data_path, positions) in enumerate(whole.items())
        }
        for data_path, ref in refs.items():
            self._vectors[ref] = BitMap64(whole[data_path])
        return refs


class Truth:
    """The table as the decided segments have it."""

    def __init__(self, rows: KeptRows, jobs: dict[str, Job]) -> None:
        self.rows = rows
        self.jobs = jobs
        """By attempt; those that may commit."""
        self.latest: dict[str, str] = {}
        """Attempt by job: files of those before may be deleted while it goes on."""
        self.segment = 0
        self.entries: dict[str, bytes] = {}
        self.head: TableHead | None = None
        self.versions: dict[int, Version] = {}
        self.contents: dict[int, Rows] = {}
        self.committed: dict[str, str] = {}
        """Attempt by job."""
        self._reach: set[str] | None = None

    def copy(self, rows: KeptRows, jobs: dict[str, Job]) -> "Truth":
        copied = Truth(rows, jobs)
        copied.segment, copied.head = self.segment, self.head
        copied.entries = dict(self.entries)
        copied.versions = dict(self.versions)
        copied.contents = dict(self.contents)
        copied.committed = dict(self.committed)
        return copied

    def decide(self, number: int, payload: bytes, stored: Iterable[str]) -> None:
        """Follow a segment that was created; raises Violation."""
        if number != self.segment + 1:
            raise Violation(f"segment {number} was created behind segment {self.segment}")
        self.segment = number
        self._reach = None
        before = self.head
        records = decode_segment(payload, number=number, path=f"{SEGMENTS}{number:020}").records
        made = sorted(key for key, value in records.items() if value and _is_new(key, self.entries))
        for key, value in records.items():
            if key.startswith(CONSUMER_PREFIX):
                self._follow_consumer(key, value)
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        if HEAD_KEY in records:
            self.head = TableHead.decode(self.entries[HEAD_KEY], path=HEAD_KEY)
        for key in made:
            self._follow_edit(self.entries[key], before)
        assert self.head is not None
        if self.head.current_version != max(self.versions):
            raise Violation(f"the head is at {self.head.current_version} of {max(self.versions)}")
        missing = [path for path in self._brought(made) if path not in stored]
        if missing:
            raise Violation(f"version {self.head.current_version} was committed without {missing}")
        retained = self.retained
        for key, value in self.entries.items():
            if key.startswith(TAG_PREFIX) and int(value) not in retained:
                raise Violation(f"{key} is of version {int(value)}, and {retained} are kept")
            # No run lasts for as long as a consumer keeps history.
            if key.startswith(CONSUMER_PREFIX):
                needed = max(_position_in(key, value), 1)
                if needed < self.head.oldest_version:
                    raise Violation(f"{key} needs version {needed}, and {retained} are kept")

    def _follow_consumer(self, key: str, value: bytes | None) -> None:
        before = self.entries.get(key)
        if before and value and _position_in(key, value) < _position_in(key, before):
            raise Violation(f"{key} went back from {before!r} to {value!r}")

    def _follow_edit(self, payload: bytes, before: TableHead | None) -> None:
        edit = decode_edit(payload, path="truth")
        number = edit.base + 1
        if number != max(self.versions, default=0) + 1:
            raise Violation(f"version {number} follows version {max(self.versions)}")
        version = apply_edit(self.versions.get(edit.base), edit)
        self.versions[number] = version
        rows = dict(self.contents.get(edit.base, {}))
        if edit.facts.operation is not Operation.CREATE:
            job = self.jobs[edit.facts.summary["attempt"]]
            other = self.committed.setdefault(job.job_id, job.attempt)
            if other != job.attempt:
                raise Violation(f"{job.attempt} was committed, and so was {other}")
            if job.epoch is not None and (before is None or before.writer_epoch != job.epoch):
                raise Violation(f"{job.attempt} of epoch {job.epoch} was accepted after its end")
            if job.restores is not None:
                rows = dict(self.contents[job.restores])
            for key, value in job.effect.items():
                rows.pop(key, None)
                if value is not None:
                    rows[key] = value
        shown = self.rows.live_rows(version)
        if shown != sorted(rows.items()):
            raise Violation(f"version {number} shows {shown}, not {sorted(rows.items())}")
        self.contents[number] = rows

    def _brought(self, made: Iterable[str]) -> set[str]:
        paths: set[str] = set()
        for key in made:
            paths |= paths_of(self.versions[int(key.removeprefix(VERSION_PREFIX))])
        return paths

    @property
    def retained(self) -> set[int]:
        """Versions that can be read."""
        assert self.head is not None
        oldest = self.head.oldest_version
        alone = {
            int(key.removeprefix(STATE_PREFIX))
            for key in self.entries
            if key.startswith(STATE_PREFIX)
        }
        return {*range(oldest, self.head.current_version + 1), *(n for n in alone if n < oldest)}

    @property
    def reach(self) -> set[str]:
        """Files of retained Versions."""
        if self._reach is None:
            self._reach = set()
            for number in self.retained:
                self._reach |= paths_of(self.versions[number])
        return self._reach

    def check_deletion(self, path: str, leases: Iterable[tuple[HeldLease, set[str]]]) -> None:
        """Refuse what must not be deleted now; raises Violation."""
        if path in self.reach:
            raise Violation(f"{path} was deleted, and a retained version reaches it")
        for key, payload in self.entries.items():
            if key.startswith(INTENT_PREFIX):
                document = Document.read(payload, format_number=1, path=key)
                is_latest = attempt_of(path) == self.latest[key.removeprefix(INTENT_PREFIX)]
                if is_latest and path.startswith(document.texts("prefixes")):
                    raise Violation(f"{path} was deleted, and {key} announced it")
        for lease, files in leases:
            with lease._lock:
                is_relied_on = not lease._has_lapsed_locked()
            if is_relied_on and path in files:
                raise Violation(f"{path} was deleted under a lease on version {lease.version}")

    def leftovers(self) -> list[str]:
        """Keys of work that is neither done nor given up."""
        prefixes = (INTENT_PREFIX, GARBAGE_PREFIX, "abandoned/")
        return [key for key in self.entries if key.startswith(prefixes)]


def _position_in(key: str, payload: bytes) -> int:
    return Document.read(payload, format_number=1, path=key).integer("position")


def _is_new(key: str, entries: Mapping[str, bytes]) -> bool:
    return key.startswith(VERSION_PREFIX) and key not in entries


class WatchedStore(MemoryStore):
    """Objects in memory that tell the truth of every segment and every deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.truth: Truth | None = None
        self.violation: Violation | None = None
        self.leases: list[tuple[HeldLease, set[str]]] = []
        """Of readers who were told that their Version is retained, with its files."""
        self.deleted: set[str] = set()
        self.revived: set[str] = set()
        """Files that a request which was late wrote again, behind their deletion."""

    def put(self, path: str, payload: bytes) -> str:
        if path in self.deleted:
            self.revived.add(path)
        return super().put(path, payload)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        tag = super().put_if_absent(path, payload)
        if tag is not None and self.truth is not None and path.startswith(SEGMENTS):
            number = int(path.removeprefix(f"{SEGMENTS}seg-"))
            with self._noticing():
                self.truth.decide(number, payload, self._contents.entries)
        return tag

    def delete(self, path: str) -> None:
        if path.startswith(FILES) and path in self._contents.entries:
            assert self.truth is not None
            with self._noticing():
                self.truth.check_deletion(path, self.leases)
            self.deleted.add(path)
        super().delete(path)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Remember the first violation: whoever made the call may not be heard any more."""
        try:
            yield
        except Violation as violation:
            self.violation = self.violation or violation
            raise

    def files(self) -> set[str]:
        """Data files and vectors that are there."""
        return {path for path in self._contents.entries if path.startswith(FILES)}

    def copy(self, truth: Truth) -> "WatchedStore":
        copied = WatchedStore()
        copied._contents.entries = dict(self._contents.entries)
        copied._contents._tags_given = self._contents._tags_given
        copied.truth = truth
        return copied
