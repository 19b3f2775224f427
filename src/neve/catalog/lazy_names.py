"""Names of `neve` that need the engine: they are loaded when they are asked for.

Loading it, and Arrow with it, takes ten times as long as loading the rest, and commands such as
`neve --help` need none of it. `neve/__init__.pyi` has the types of what these are.
"""

import importlib
import sys
from typing import Final

_HOMES: Final = {
    "Catalog": ("neve.catalog.kv_catalog", "KVCatalog"),
    "Evolution": ("neve.catalog.evolution", "Evolution"),
    "ExpireReport": ("neve.engine.upkeep", "ExpireReport"),
    "Filter": ("neve.read.filters", "Filter"),
    "GarbageReport": ("neve.engine.upkeep", "GarbageReport"),
    "Listener": ("neve.observability.events", "Listener"),
    "Predicate": ("neve.model.predicate", "Predicate"),
    "Recorder": ("neve.observability.metrics", "Recorder"),
    "Row": ("neve.table.table_view", "Row"),
    "Rows": ("neve.engine.row_input", "Rows"),
    "Scan": ("neve.read.scan", "Scan"),
    "Snapshot": ("neve.engine.snapshot", "Snapshot"),
    "Table": ("neve.catalog.table", "Table"),
    "TableOptions": ("neve.engine.table_options", "TableOptions"),
    "TableSchema": ("neve.model.schema", "TableSchema"),
    "TableStats": ("neve.catalog.table", "TableStats"),
    "VerifyReport": ("neve.engine.verification", "VerifyReport"),
    "col": ("neve.model.predicate", "col"),
}
_DISTRIBUTION: Final = "neve"
_VERSION: Final = "__version__"
# Of a copy of the sources that was never installed.
_NO_VERSION: Final = "0+unknown"


def find_lazily(name: str) -> object:
    """Return a name of `neve`; raises AttributeError for one it has not."""
    if name == _VERSION:
        return _installed_version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'neve' has no attribute {name!r}")
    module, attribute = home
    return getattr(importlib.import_module(module), attribute)


def list_names() -> list[str]:
    """Return what a program uses of `neve`, loaded or not, as `dir` and completion show it."""
    found = vars(sys.modules["neve"])
    standard = {name for name in found if name.startswith("__")}
    return sorted({*found["__all__"], *standard, _VERSION})


def _installed_version() -> str:
    # By name: reading metadata loads a parser of mails, and few programs ask.
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version(_DISTRIBUTION))
    except metadata.PackageNotFoundError:
        return _NO_VERSION
