from neve.catalog.kv_catalog import KVCatalog as Catalog
from neve.catalog.open_catalog import open  # noqa: A004 - it is called neve.open
from neve.catalog.table import Table
from neve.engine.snapshot import Snapshot
from neve.engine.table_options import TableOptions
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
    Unavailable,
)
from neve.model.predicate import col
from neve.read.scan import Scan

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
    "Table",
    "TableOptions",
    "Unavailable",
    "col",
    "open",
]
