"""KVCatalog: the name of `neve.catalog.lake.Lake` in 0.1; removed in the next release."""

import warnings

from neve.catalog.lake import Lake


def __getattr__(name: str) -> type[Lake]:
    if name != "KVCatalog":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "neve.catalog.kv_catalog.KVCatalog is now neve.Lake", DeprecationWarning, stacklevel=2
    )
    return Lake
