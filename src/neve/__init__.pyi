from collections.abc import Mapping
from os import PathLike

from neve import cdc as cdc
from neve.catalog.evolution import Evolution
from neve.catalog.lake import Lake
from neve.catalog.table import Table, TableStats
from neve.catalog.transaction import LakeTransaction, Transaction
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
    StorageRefused,
    Unavailable,
)
from neve.model.predicate import Predicate, col
from neve.model.schema import TableSchema
from neve.observability.events import Listener
from neve.observability.metrics import Recorder
from neve.read.filters import Filter
from neve.read.scan import Scan
from neve.storage.clock import Clock, IdSource
from neve.table.table_view import Row

Catalog = Lake
__version__: str

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
) -> Lake: ...

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
