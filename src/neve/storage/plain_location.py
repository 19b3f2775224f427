"""Locations as Iceberg's metadata spells them.

Iceberg compares locations byte for byte and decodes nothing: a directory named `my lake` is
`file:///my lake`, where a URI would say `file:///my%20lake`. Everything that other engines read
(metadata, manifests, and the vectors that name their data files) spells locations this way.
"""

from typing import Final
from urllib.parse import unquote

_FILE: Final = "file:"


def plain_location(location: str, path: str = "") -> str:
    """Return the location of a store, or of an object in it, as Iceberg spells it."""
    root = unquote(location) if location.startswith(_FILE) else location
    root = root.rstrip("/")
    return f"{root}/{path}" if path else root
