"""Opening the store at a location, and probes of what it supports.

    /data/lake, data/lake          a directory on this machine
    file:///data/lake              the same, percent-decoded
    s3://bucket/prefix             an S3 bucket; s3a:// is the same
    gs://bucket/prefix             a bucket of Google Cloud Storage
    az://container/prefix          a container of Azure
    abfss://container@account.dfs.core.windows.net/prefix    the same, with its account
    memory://name                  in this process, percent-decoded; one name is one store

A location never holds a secret: user names, passwords, queries and fragments are refused, and the
error does not repeat them. `neve.storage.cloud_options` lists the storage options of buckets. They
come from the caller only. obstore has its own credential chain, which may read the environment when
no key is given.

Before the first commit, a probe checks that a store keeps the promises that commits need. Some
servers accept `If-None-Match` and `If-Match` and ignore them: every write succeeds, two writers
both believe they won, and one commit is lost. Some list out of order, so that a listing that begins
after a name misses objects. The probe writes objects named `probe-<id>` and deletes them; a crash
can leave one, which may be deleted at any time.
"""

import importlib
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from neve.errors import InvalidArgument, NeveError, OutcomeUnknown, Phrase, Unavailable, Wording
from neve.storage.clock import Clock, IdSource
from neve.storage.cloud_options import (
    AzureOptions,
    ClientOptions,
    GcsOptions,
    parse_options,
    parse_s3_options,
)
from neve.storage.file_cache import DIRECTORY_BYTES, MEMORY_BYTES, CachedStore
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore, named_memory_store
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import check_path

logger = logging.getLogger(__name__)

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
_HALF_URL: Final = re.compile(r"(?:s3|s3a|gs|az|abfss?|memory|https?):", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
# Azure writes container@account.host where others have user:password@host.
_AZURE: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_CONTAINER: Final = re.compile(r"[a-z0-9$][a-z0-9-]{0,62}@[A-Za-z0-9][A-Za-z0-9.-]*")
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})
_FORMS: Final = (
    "Pass a directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix, "
    "az://container/prefix or memory://name"
)


def open_store(
    location: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    create: bool = True,
) -> ObjectStore:
    """Open the store at `location`; a directory that does not exist is created.

    Without `create` it is NotFound. A bucket is neither created nor checked here.
    """
    if not location.strip():
        raise InvalidArgument("the location is empty", hint=_FORMS)
    if _CONTROL.search(location):
        raise InvalidArgument("the location holds a control character", hint=_FORMS)
    scheme, rest = _split(location)
    options = storage_options or {}
    match scheme:
        case "s3" | "s3a":
            return _open_cloud(rest, parse_s3_options(options), clock, ids)
        case "gs":
            return _open_cloud(rest, parse_options(GcsOptions, options), clock, ids)
        case "az" | "abfs" | "abfss":
            container, account = _container(rest, options)
            return _open_cloud(container, parse_options(AzureOptions, account), clock, ids)
        case "":
            _refuse_options(options)
            return LocalStore(rest, clock=clock, ids=ids, create=create)
        case "file":
            _refuse_options(options)
            return LocalStore(_file_path(rest), clock=clock, ids=ids, create=create)
        case "memory":
            _refuse_options(options)
            return named_memory_store(_memory_name(rest))
        case _:
            raise InvalidArgument(f"neve has no store for {scheme}:// locations", hint=_FORMS)


def is_bucket(location: str) -> bool:
    """Return whether a location is in a bucket, by its scheme alone."""
    return location.partition("://")[0].lower() in _BUCKETS and "://" in location


def _split(location: str) -> tuple[str, str]:
    """Return the scheme in lower case, empty for a plain path, and the rest."""
    if location.startswith("file:/") and not location.startswith("file://"):
        # The form that Java writes.
        location = f"file://{location.removeprefix('file:')}"
    url = _URL.fullmatch(location)
    if url is None:
        if _HALF_URL.match(location):
            raise InvalidArgument("the location has a scheme but no //", hint=_FORMS)
        return "", location
    scheme, rest = url[1].lower(), url[2]
    if "@" in rest.partition("/")[0] and not _is_container(scheme, rest):
        raise InvalidArgument(
            "the location holds a user name or password",
            hint=Wording(Phrase.CREDENTIALS),
        )
    if "?" in rest or "#" in rest:
        raise InvalidArgument(
            "the location holds a query or a fragment",
            hint="Remove what begins with ? or #; in a file URL write %3F and %23",
        )
    return scheme, rest


def _is_container(scheme: str, rest: str) -> bool:
    """Return whether the part before an @ is a container of Azure, not a user or password."""
    return scheme in _AZURE and _CONTAINER.fullmatch(rest.partition("/")[0]) is not None


def _refuse_options(options: Mapping[str, str]) -> None:
    if options:
        raise InvalidArgument(
            f"this location takes no storage options, but {min(options)!a} was given",
            hint="Leave them out, or pass the location of a bucket",
        )


def _file_path(rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise InvalidArgument("a file URL names a directory on this machine", hint=_FORMS)
    decoded = unquote(f"/{path}")
    if _CONTROL.search(decoded):
        raise InvalidArgument("the location holds a control character", hint=_FORMS)
    return decoded


def _memory_name(rest: str) -> str:
    name = unquote(rest)
    if not name or "/" in rest:
        raise InvalidArgument("a memory location has one name and no path", hint=_FORMS)
    return name


def _container(rest: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return a location without its account, and the options with it."""
    place, slash, path = rest.partition("/")
    container, at, host = place.partition("@")
    if not at:
        return rest, dict(options)
    account = host.partition(".")[0]
    if options.get("account_name", account) != account:
        raise InvalidArgument(
            "the location names another account than the storage options",
            hint="Leave account_name out",
        )
    return f"{container}{slash}{path}", {**options, "account_name": account}


def _open_cloud(
    rest: str, options: ClientOptions, clock: Clock | None, ids: IdSource | None
) -> ObjectStore:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidArgument("the location has no valid bucket name", hint=_FORMS)
    prefix = prefix.removesuffix("/")
    if prefix:
        check_path(prefix)
    # By name: the client is an extra, and is loaded only for buckets.
    cloud_store = importlib.import_module("neve.storage.cloud_store")
    store = cloud_store.open_cloud(bucket, prefix=prefix, options=options, clock=clock, ids=ids)
    directory, limit, prices = options.cache_directory, options.cache_bytes, options.prices
    if directory is None:
        return CachedStore(store, MemoryStore(), bytes_max=limit or MEMORY_BYTES, prices=prices)
    try:
        copies = LocalStore(directory, clock=clock, ids=ids)
    except NeveError as error:
        # STORAGE-52: a broken cache costs requests, never an answer.
        logger.warning("could not open the directory of copies path=%s cause=%s", directory, error)
        limit = min(limit or MEMORY_BYTES, MEMORY_BYTES)
        return CachedStore(store, MemoryStore(), bytes_max=limit, prices=prices)
    return CachedStore(store, copies, bytes_max=limit or DIRECTORY_BYTES, prices=prices)


_HINT = "Use a store with conditional writes, such as S3, or a directory on a local disk"


def probe_conditional_writes(store: ObjectStore, ids: IdSource) -> None:
    """Raise Unavailable, with the name of the condition, when the store ignores one."""
    path = f"probe-{ids.uuid()}"
    # Never equal, so that no answer can be mistaken for another.
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
                hint="Open it with the storage option listing=unordered",
            )
    finally:
        for path in paths:
            _sweep(store, path)


def _sweep(store: ObjectStore, path: str) -> None:
    # The result of the probe matters more than a leftover probe object.
    with suppress(Unavailable, OutcomeUnknown):
        store.delete(path)


def _ignored(store: ObjectStore, condition: str) -> NeveError:
    return Unavailable(
        f"{store.location} ignores the condition to {condition}: two writers would both believe "
        "that they committed, and one commit would be lost",
        hint=_HINT,
    )


def _refused(store: ObjectStore, what: str) -> NeveError:
    return Unavailable(
        f"{store.location} {what}: commits to it would fail or be lost",
        hint=_HINT,
    )
