"""`neve.open`: the way into a warehouse.

Loading Arrow takes ten times as long as loading the rest, and commands such as `neve --help` need
none of it: the catalog is loaded when one is opened. `open_catalog.pyi` has the type of what it is.
"""

import importlib
from collections.abc import Mapping
from os import PathLike

from neve.errors import InvalidArgument
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
) -> "Catalog":  # noqa: F821 - not loaded yet; the stub imports it
    """Open the catalog of a warehouse, making an empty one when there is none.

    A location is a directory, `file:///directory`, `s3://bucket/prefix` or `memory://name`; options
    are those of `neve.storage.s3_options`. Without `create`, a missing catalog is NotFound. The
    recorder takes the metrics of its tables, the listener what happens to them.
    """
    kv_catalog = importlib.import_module("neve.catalog.kv_catalog")
    try:
        return kv_catalog.open_kv_catalog(
            location,
            storage_options=storage_options,
            clock=clock,
            ids=ids,
            create=create,
            recorder=recorder,
            listener=listener,
        )
    except InvalidArgument as error:
        if isinstance(error.__cause__, NotADirectoryError):
            error.hint = "A lake is a directory: name one, or one that is to be made"
        raise
