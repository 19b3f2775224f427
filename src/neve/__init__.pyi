from neve.catalog.evolution import Evolution
from neve.catalog.kv_catalog import KVCatalog as Catalog
from neve.catalog.open_catalog import open  # noqa: A004 - it is called neve.open
from neve.catalog.table import Table
from neve.catalog.table_stats import TableStats
from neve.engine.row_input import Rows
from neve.engine.snapshot import Snapshot
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import ExpireReport, GarbageReport
from neve.engine.verification import VerifyReport
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
    Unavailable,
)
from neve.model.predicate import Predicate, col
from neve.model.schema import TableSchema
from neve.observability.events import Listener
from neve.observability.metrics import Recorder
from neve.read.filter_input import Filter
from neve.read.scan import Scan
from neve.read.table_view import Row

__version__: str

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
    "Table",
    "TableOptions",
    "TableSchema",
    "TableStats",
    "Unavailable",
    "VerifyReport",
    "__version__",
    "col",
    "open",
]
