"""Embeddable primary-key tables for the lakehouse: durable rows in, clean Iceberg snapshots out."""

from neve.catalog.lazy_names import find_lazily as __getattr__  # noqa: F401 - Python calls it
from neve.catalog.lazy_names import list_names as __dir__  # noqa: F401 - Python calls it
from neve.catalog.open_catalog import open  # noqa: A004 - it is called neve.open
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
    OutcomeUnknown,
    SchemaMismatch,
    StorageFull,
    StorageReadOnly,
    Unavailable,
)

__all__ = [
    "AlreadyExists",
    "Catalog",
    "CatalogConflict",
    "Closed",
    "Conflict",
    "Corruption",
    "Fenced",
    "InvalidArgument",
    "LimitExceeded",
    "NeveError",
    "NotFound",
    "OutcomeUnknown",
    "Scan",
    "SchemaMismatch",
    "Snapshot",
    "StorageFull",
    "StorageReadOnly",
    "Table",
    "TableOptions",
    "Unavailable",
    "col",
    "open",
]
