"""Embeddable primary-key tables for the lakehouse: durable rows in, clean Iceberg snapshots out.

Names that need the engine are loaded when they are first used: loading it, and Arrow with it, takes
ten times as long as loading the rest, and commands such as `neve --help` need none of it.
`__init__.pyi` has their types.
"""

import functools
import importlib
from collections.abc import Mapping
from os import PathLike
from typing import Final

from neve.errors import (
    AlreadyExists,
    CatalogConflict,
    Closed,
    Conflict,
    Corruption,
    Fenced,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    NotPublished,
    OutcomeUnknown,
    SchemaMismatch,
    StorageFull,
    StorageReadOnly,
    StorageRefused,
    Unavailable,
)
from neve.observability.events import Listener
from neve.observability.metrics import Recorder
from neve.storage.clock import Clock, IdSource

__all__ = [
    "AlreadyExists",
    "Catalog",
    "CatalogConflict",
    "Closed",
    "Conflict",
    "Corruption",
    "Evolution",
    "ExpireReport",
    "Fenced",
    "Filter",
    "GarbageReport",
    "InvalidArgument",
    "Lake",
    "LakeTransaction",
    "LimitExceeded",
    "Listener",
    "NeveError",
    "NotFound",
    "NotPublished",
    "OutcomeUnknown",
    "Predicate",
    "Recorder",
    "Row",
    "Rows",
    "Scan",
    "SchemaMismatch",
    "Snapshot",
    "StorageFull",
    "StorageReadOnly",
    "StorageRefused",
    "Table",
    "TableOptions",
    "TableSchema",
    "TableStats",
    "Transaction",
    "Unavailable",
    "VerifyReport",
    "__version__",
    "cdc",
    "col",
    "open",
]

_HOMES: Final = {
    "Catalog": ("neve.catalog.lake", "Lake"),
    "Evolution": ("neve.catalog.evolution", "Evolution"),
    "ExpireReport": ("neve.engine.upkeep", "ExpireReport"),
    "Filter": ("neve.read.filters", "Filter"),
    "GarbageReport": ("neve.engine.upkeep", "GarbageReport"),
    "Lake": ("neve.catalog.lake", "Lake"),
    "LakeTransaction": ("neve.catalog.transaction", "LakeTransaction"),
    "Predicate": ("neve.model.predicate", "Predicate"),
    "Row": ("neve.table.table_view", "Row"),
    "Rows": ("neve.engine.row_input", "Rows"),
    "Scan": ("neve.read.scan", "Scan"),
    "Snapshot": ("neve.engine.snapshot", "Snapshot"),
    "Table": ("neve.catalog.table", "Table"),
    "TableOptions": ("neve.engine.table_options", "TableOptions"),
    "TableSchema": ("neve.model.schema", "TableSchema"),
    "TableStats": ("neve.catalog.table", "TableStats"),
    "Transaction": ("neve.catalog.transaction", "Transaction"),
    "VerifyReport": ("neve.engine.verification", "VerifyReport"),
    "col": ("neve.model.predicate", "col"),
}
# Of a copy of the sources that was never installed.
_NO_VERSION: Final = "0+unknown"


def open(  # noqa: A001 - it is called neve.open
    location: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    create: bool = True,
    recorder: Recorder | None = None,
    listener: Listener | None = None,
    read_only: bool = False,
) -> "Lake":  # noqa: F821 - not loaded yet; the stub imports it
    """Open a lake, making an empty one when there is none.

    A location is a directory, `file:///directory`, `s3://bucket/prefix` or `memory://name`; options
    are those of `neve.storage.cloud_options`. Without `create`, a missing lake is NotFound. With
    `read_only`, nothing is changed but leases, and every table is opened beside its writer. The
    recorder takes the metrics of its tables, the listener what happens to them.
    """
    return importlib.import_module("neve.catalog.lake").open_lake(
        location,
        storage_options=storage_options,
        clock=clock,
        ids=ids,
        create=create,
        recorder=recorder,
        listener=listener,
        read_only=read_only,
        make_sql=_make_sql,
        load_server=_load_server,
    )


def _make_sql(lake: object) -> object:
    """Load SQL, which is an extra, for a lake that is asked for it."""
    try:
        return importlib.import_module("neve.sql.session").make_engine(lake)
    except ImportError as error:
        raise Unavailable(
            f"SQL is not installed: {error}", hint="Install it with: pip install 'neve[sql]'"
        ) from error


def _load_server(lake: object) -> object:
    """Load the server, which is an extra, for a lake that is asked for it."""
    return functools.partial(importlib.import_module("neve.server.http_server").serve, lake)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _installed_version()
    if name == "cdc":
        return importlib.import_module("neve.cdc")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'neve' has no attribute {name!r}")
    module, attribute = home
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    standard = {name for name in globals() if name.startswith("__")}
    return sorted({*__all__, *standard})


def _installed_version() -> str:
    # By name: reading metadata loads a parser of mails, and few programs ask.
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("neve"))
    except metadata.PackageNotFoundError:
        return _NO_VERSION
