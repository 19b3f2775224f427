"""Names of `neve` that need the engine: they are loaded when somebody asks for them.

Loading it, and Arrow with it, takes ten times as long as loading the rest, and commands such as
`neve --help` need none of it. `neve/__init__.pyi` has the types of what these are.
"""

import importlib
import sys
from typing import Final

_HOMES: Final = {
    "Catalog": ("neve.catalog.kv_catalog", "KVCatalog"),
    "Scan": ("neve.read.scan", "Scan"),
    "Snapshot": ("neve.engine.snapshot", "Snapshot"),
    "Table": ("neve.catalog.table", "Table"),
    "TableOptions": ("neve.engine.table_options", "TableOptions"),
    "col": ("neve.model.predicate", "col"),
}


def find_lazily(name: str) -> object:
    """Give a name of `neve`; raises AttributeError for one it has not."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'neve' has no attribute {name!r}")
    module, attribute = home
    return getattr(importlib.import_module(module), attribute)


def list_names() -> list[str]:
    """Name everything that `neve` has, loaded or not, as `dir` and completion show it."""
    return sorted({*vars(sys.modules["neve"]), *_HOMES})
