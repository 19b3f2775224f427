"""Documents of a table's version store, and the keys they are kept under.

    head               TableHead: the one record every commit reads and writes
    version/<n:020>    the edit that made Version n (MRUB)
    state/<n:020>      Version n in full (MRUB); written by checkpoints, so that reading is fast
    schema/<n:010>     the schema of that id, as JSON         spec/<n:010>   the partition spec
    tag/<name>         a Version with a name; it is never expired
    consumer/<name>    how far a named reader of the change feed has come; keeps what comes after
    txn/<app id>       last batch an application has committed
    job/<id>           the Version a job has committed
    intent/<id>        files a job is about to write; garbage collection leaves them alone
    abandoned/<id>     name prefixes of files that a job wrote and never committed
    gc/<id>-<n>        files that no Version reaches any more and that are being deleted
    seen               when a collector saw a Version, if times of Versions are ahead of its clock
    reservation        a job that lost too many races and commits next
    purge              the table was dropped together with its files, which are being deleted

MANIFEST-H1  current_version, flushed_sequence, last_sequence, next_log_number, wal_floor and
             writer_epoch never go down.
MANIFEST-H2  A dropped table accepts no more commits.
MANIFEST-H3  Names from outside (tags, consumers, applications, jobs) are 1 to 255 bytes without
             control characters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from neve.errors import CatalogConflict, Corruption, InvalidArgument
from neve.manifest.json_document import Document, write_document

HEAD_KEY: Final = "head"
VERSION_PREFIX: Final = "version/"
STATE_PREFIX: Final = "state/"
SCHEMA_PREFIX: Final = "schema/"
SPEC_PREFIX: Final = "spec/"
TAG_PREFIX: Final = "tag/"
CONSUMER_PREFIX: Final = "consumer/"
TRANSACTION_PREFIX: Final = "txn/"
JOB_PREFIX: Final = "job/"
INTENT_PREFIX: Final = "intent/"
ABANDONED_PREFIX: Final = "abandoned/"
GARBAGE_PREFIX: Final = "gc/"
SEEN_KEY: Final = "seen"
RESERVATION_KEY: Final = "reservation"
PURGE_KEY: Final = "purge"

RESERVATION_MS_MAX: Final = 10_000

_FORMAT: Final = 1
_NAME_BYTES_MAX: Final = 255
_DIGITS_MAX: Final = 20
_REFUSED_IN_NAME: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def version_key(number: int) -> str:
    """Return the key of the edit that made a Version."""
    return f"{VERSION_PREFIX}{number:020}"


def state_key(number: int) -> str:
    """Return the key of a Version in full."""
    return f"{STATE_PREFIX}{number:020}"


def schema_key(schema_id: int) -> str:
    """Return the key of a schema."""
    return f"{SCHEMA_PREFIX}{schema_id:010}"


def spec_key(spec_id: int) -> str:
    """Return the key of a partition spec."""
    return f"{SPEC_PREFIX}{spec_id:010}"


def tag_key(name: str) -> str:
    """Return the key of a tag; raises InvalidArgument (MANIFEST-H3)."""
    return _named_key(TAG_PREFIX, "tag", name)


def consumer_key(name: str) -> str:
    """Return the key of a consumer; raises InvalidArgument (MANIFEST-H3)."""
    return _named_key(CONSUMER_PREFIX, "consumer", name)


def transaction_key(application: str) -> str:
    """Return the key of an application's last batch; raises InvalidArgument (MANIFEST-H3)."""
    return _named_key(TRANSACTION_PREFIX, "writing application", application)


def job_key(job_id: str) -> str:
    """Return the key of a finished job; raises InvalidArgument (MANIFEST-H3)."""
    return _named_key(JOB_PREFIX, "job", job_id)


def intent_key(job_id: str) -> str:
    """Return the key of an intent; raises InvalidArgument (MANIFEST-H3)."""
    return _named_key(INTENT_PREFIX, "job", job_id)


def abandoned_key(job_id: str) -> str:
    """Return the key of an abandoned job; raises InvalidArgument (MANIFEST-H3)."""
    return _named_key(ABANDONED_PREFIX, "job", job_id)


def read_number(key: str, *, prefix: str) -> int:
    """Read the number in a key; raises Corruption."""
    digits = key.removeprefix(prefix)
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX):
        raise Corruption(f"{key[:80]!a} is not a key of a table", path=prefix)
    return int(digits)


def read_tag(value: bytes, *, path: str) -> int:
    """Read the number of the Version that a tag names; raises Corruption."""
    if not (value.isdigit() and len(value) <= _DIGITS_MAX):
        raise Corruption(f"a tag holds {value[:40]!a} instead of a number", path=path)
    return int(value)


def _named_key(prefix: str, what: str, name: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(
            f"the name of a {what} is a str, not {type(name).__name__}", hint="Pass a str"
        )
    if not name or _REFUSED_IN_NAME.search(name) or len(name.encode()) > _NAME_BYTES_MAX:
        shown = name if len(name) <= _NAME_BYTES_MAX else f"{name[:40]}…"
        raise InvalidArgument(
            f"{shown!a} cannot be the name of a {what}",
            hint=f"Use 1 to {_NAME_BYTES_MAX} bytes, without control characters",
        )
    return f"{prefix}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history is kept: whichever of the two keeps more."""

    versions: int = 5
    milliseconds: int = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The job that commits next, and until when others wait for it."""

    job_id: str
    until_ms: int

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return write_document(_FORMAT, {"job_id": self.job_id, "until_ms": self.until_ms})

    @classmethod
    def decode(cls, payload: bytes, *, path: str) -> "Reservation":
        """Read the document; raises Corruption."""
        document = Document.read(payload, format_number=_FORMAT, path=path)
        return cls(job_id=document.text("job_id"), until_ms=document.integer("until_ms"))

    def is_in_force(self, now_ms: int) -> bool:
        """Whether others still wait.

        A reservation that seems to last longer than allowed was made before the clock jumped back.
        """
        return 0 < self.until_ms - now_ms <= RESERVATION_MS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """The current state of a table."""

    table_id: str
    table_uuid: str
    current_version: int
    oldest_version: int
    schema_id: int
    spec_id: int
    sort_order: str
    """Column names, comma separated, with `-` before descending ones; empty for the key."""
    last_transaction_ms: int
    dropped: bool = False
    flushed_sequence: int = 0
    last_sequence: int = 0
    next_log_number: int = 1
    wal_floor: int = 1
    writer_epoch: int = 0
    retention: Retention = Retention()

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return write_document(
            _FORMAT,
            {
                "table_id": self.table_id,
                "table_uuid": self.table_uuid,
                "current_version": self.current_version,
                "oldest_version": self.oldest_version,
                "schema_id": self.schema_id,
                "spec_id": self.spec_id,
                "sort_order": self.sort_order,
                "last_transaction_ms": self.last_transaction_ms,
                "dropped": self.dropped,
                "flushed_sequence": self.flushed_sequence,
                "last_sequence": self.last_sequence,
                "next_log_number": self.next_log_number,
                "wal_floor": self.wal_floor,
                "writer_epoch": self.writer_epoch,
                "retention_versions": self.retention.versions,
                "retention_ms": self.retention.milliseconds,
            },
        )

    @classmethod
    def decode(cls, payload: bytes, *, path: str) -> "TableHead":
        """Read the document; raises Corruption."""
        return _decode_head(payload, path)

    def advanced(self, change: "HeadChange", *, versions: int, now_ms: int) -> "TableHead":
        """Return the head after a commit of `versions` Versions."""
        return replace(
            self,
            current_version=self.current_version + versions,
            last_transaction_ms=max(now_ms, self.last_transaction_ms),
            schema_id=_given(change.schema_id, self.schema_id),
            spec_id=_given(change.spec_id, self.spec_id),
            sort_order=change.sort_order if change.sort_order is not None else self.sort_order,
            flushed_sequence=_given(change.flushed_sequence, self.flushed_sequence),
            last_sequence=max(
                _given(change.last_sequence, self.last_sequence),
                _given(change.flushed_sequence, self.flushed_sequence),
            ),
            next_log_number=_given(change.next_log_number, self.next_log_number),
            wal_floor=_given(change.wal_floor, self.wal_floor),
            retention=change.retention or self.retention,
        )

    def with_epoch(self, epoch: int) -> "TableHead":
        """Return the head of the next writer."""
        return replace(self, writer_epoch=epoch)

    def as_dropped(self) -> "TableHead":
        """Return the head that accepts no more commits."""
        return replace(self, dropped=True)

    def retaining_from(self, oldest_version: int) -> "TableHead":
        """Return the head after older Versions expired."""
        return replace(self, oldest_version=oldest_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadChange:
    """What a commit asserts and changes besides files; None leaves a value unchanged."""

    writer_epoch: int | None = None
    """Asserted: a writer's commits are refused once another one has taken over."""
    schema_id: int | None = None
    spec_id: int | None = None
    sort_order: str | None = None
    flushed_sequence: int | None = None
    last_sequence: int | None = None
    next_log_number: int | None = None
    wal_floor: int | None = None
    retention: Retention | None = None
    application: tuple[str, int] | None = None
    """Application id and batch number, committed at most once."""
    applied: Mapping[str, int] = field(default_factory=dict)
    """Last batches of applications whose rows the live writer's commit has."""
    job_id: str | None = None
    intent_id: str | None = None
    restored_version: int | None = None
    """Asserted: the Version whose files a rollback brings back is still retained."""

    def __post_init__(self) -> None:
        # Refuse bool, which is an int, and any other type: the number is stored, and compared with
        # that of every later batch.
        if self.application is not None:
            name, batch = self.application
            if type(batch) is not int:
                raise InvalidArgument(
                    f"batch {batch!a} of application {name!a} is not a whole number",
                    hint="Number batches from 0",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a committer requires of the table; None requires nothing."""

    version: int | None = None
    """The current Version."""
    schema_id: int | None = None
    """The current schema."""
    spec_id: int | None = None
    """The current partition spec."""
    sort_order: str | None = None
    """The current sort order, as the head spells it."""
    table_uuid: str | None = None

    def check(self, head: TableHead, *, path: str) -> None:
        """Raise CatalogConflict, with `keys` that name the unmet requirements."""
        found = {
            "version": (self.version, head.current_version),
            "schema_id": (self.schema_id, head.schema_id),
            "spec_id": (self.spec_id, head.spec_id),
            "sort_order": (self.sort_order, head.sort_order),
            "table_uuid": (self.table_uuid, head.table_uuid),
        }
        unmet = {
            name: (wanted, actual)
            for name, (wanted, actual) in found.items()
            if wanted is not None and wanted != actual
        }
        if unmet:
            words = (
                f"{name} is {actual!a}, not {wanted!a}" for name, (wanted, actual) in unmet.items()
            )
            raise CatalogConflict(
                f"a requirement of the commit is not met: {', '.join(words)}",
                keys=tuple(unmet),
                path=path,
                hint="Read the table again and repeat the change",
            )


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


@lru_cache(maxsize=64)  # one commit reads the same head again and again
def _decode_head(payload: bytes, path: str) -> TableHead:
    document = Document.read(payload, format_number=_FORMAT, path=path)
    head = TableHead(
        table_id=document.text("table_id"),
        table_uuid=document.text("table_uuid"),
        current_version=document.integer("current_version"),
        oldest_version=document.integer("oldest_version"),
        schema_id=document.integer("schema_id"),
        spec_id=document.integer("spec_id"),
        sort_order=document.text("sort_order"),
        last_transaction_ms=document.integer("last_transaction_ms"),
        dropped=document.boolean("dropped"),
        flushed_sequence=document.integer("flushed_sequence"),
        last_sequence=document.integer("last_sequence"),
        next_log_number=document.integer("next_log_number"),
        wal_floor=document.integer("wal_floor"),
        writer_epoch=document.integer("writer_epoch"),
        retention=Retention(
            versions=document.integer("retention_versions"),
            milliseconds=document.integer("retention_ms"),
        ),
    )
    if not 1 <= head.oldest_version <= head.current_version:
        raise Corruption(
            f"versions {head.oldest_version} to {head.current_version} are not a range", path=path
        )
    return head
