"""Names of the files that publishing writes, in the folder `metadata` of a table.

    v<D>.metadata.json        document D; each is built on the one before it
    snap-<D>-<hash>.avro      a manifest list that was written for document D
    m-<D>-<hash>.avro         a manifest that was written for document D
    version-hint.text         the number of the newest document, in decimal

Lists and manifests are named by the hash of their bytes: two processes that publish at once, from
different states, never replace each other's files, and damage shows. Their number says from which
document on they may be reached.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

HINT_NAME: Final = "version-hint.text"

_HASH_CHARACTERS: Final = 32
_DOCUMENT: Final = re.compile(r"v([1-9][0-9]{0,18})\.metadata\.json", re.ASCII)
_HASHED: Final = re.compile(r"(?:m|snap)-([1-9][0-9]{0,18})-[0-9a-f]{32}\.avro", re.ASCII)


def document_name(number: int) -> str:
    """Name of a document."""
    return f"v{number}.metadata.json"


def manifest_list_name(number: int, payload: bytes) -> str:
    """Name of a manifest list that is written for a document."""
    return f"snap-{number}-{_hash(payload)}.avro"


def manifest_name(number: int, payload: bytes) -> str:
    """Name of a manifest that is written for a document."""
    return f"m-{number}-{_hash(payload)}.avro"


def is_intact(name: str, payload: bytes) -> bool:
    """Whether the bytes of a list or manifest are those it was named for."""
    return _HASHED.fullmatch(name) is not None and name.endswith(f"-{_hash(payload)}.avro")


@dataclass(frozen=True, slots=True)
class ParsedName:
    """What the name of a file tells."""

    number: int
    is_document: bool


def parse_name(name: str) -> ParsedName | None:
    """Read a name; None when publishing never writes such a file."""
    found = _DOCUMENT.fullmatch(name)
    if found is not None:
        return ParsedName(int(found.group(1)), is_document=True)
    found = _HASHED.fullmatch(name)
    return None if found is None else ParsedName(int(found.group(1)), is_document=False)


def _hash(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()[:_HASH_CHARACTERS]
