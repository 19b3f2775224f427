from collections.abc import Mapping
from os import PathLike

from neve.catalog.kv_catalog import KVCatalog
from neve.observability.events import Listener
from neve.observability.metrics import Recorder
from neve.storage.clock import Clock, IdSource

def open(  # noqa: A001 - it is called neve.open
    location: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    create: bool = True,
    recorder: Recorder | None = None,
    listener: Listener | None = None,
) -> KVCatalog: ...
