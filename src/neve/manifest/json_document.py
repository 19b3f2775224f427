"""Small JSON documents: written canonically, read with every field checked.

Each document is an object with a `format` number. Unknown fields of a known format are dropped: a
change of meaning needs a new number, and a newer number is refused.

MANIFEST-J1  Nothing is written that could not be read back: a number below 0 or above 2^63 - 1, a
             text without a UTF-8 form, a document that is too long.
"""

import json
from collections.abc import Mapping
from typing import Final, NoReturn

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.schema_json import Json

# A parsed document takes up to 24 times its bytes, so this bounds what a hostile one can cost.
DOCUMENT_BYTES_MAX: Final = 8 << 20
_U63_MAX: Final = (1 << 63) - 1


def write_document(format_number: int, fields: Mapping[str, Json]) -> bytes:
    """Return canonical bytes of a document; raises InvalidArgument (MANIFEST-J1)."""
    document: dict[str, Json] = {"format": format_number, **fields}
    for name, value in document.items():
        if isinstance(value, int) and not 0 <= value <= _U63_MAX:
            raise InvalidArgument(
                f"{name} cannot be {value}", hint="Use a number from 0 to 2^63 - 1"
            )
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        payload = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"a text cannot be stored: {error.reason}", hint="Leave out half surrogates"
        ) from error
    if len(payload) > DOCUMENT_BYTES_MAX:
        raise LimitExceeded(
            f"a document of {len(payload):,} bytes is too large",
            limit=DOCUMENT_BYTES_MAX,
            actual=len(payload),
            hint="Name fewer things at once",
        )
    return payload


class Document:
    """A document that was read; accessors raise Corruption when the field has another type."""

    def __init__(self, fields: dict[str, Json], path: str) -> None:
        self._fields = fields
        self._path = path

    @classmethod
    def read(cls, payload: bytes, *, format_number: int, path: str) -> "Document":
        """Parse a document of a format up to `format_number`."""
        if len(payload) > DOCUMENT_BYTES_MAX:
            raise Corruption(f"a document of {len(payload):,} bytes is too large", path=path)
        try:
            fields = json.loads(payload.decode())
        except (ValueError, RecursionError) as error:
            raise Corruption(f"a document cannot be read: {error}", path=path) from error
        if not isinstance(fields, dict):
            raise Corruption("a document is not an object", path=path)
        document = cls(fields, path)
        found = document.integer("format")
        if found > format_number:
            raise Corruption(
                f"document format {found} is newer than this neve reads ({format_number})",
                path=path,
                hint="Open the lake with the neve that wrote it, or a newer one",
            )
        return document

    def integer(self, name: str) -> int:
        """Return a number from 0 to 2^63 - 1."""
        value = self._fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _U63_MAX:
            self._refuse(name, "a number")
        return value

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            self._refuse(name, "a text")
        return value

    def boolean(self, name: str) -> bool:
        """Return true or false."""
        value = self._fields.get(name)
        if not isinstance(value, bool):
            self._refuse(name, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            self._refuse(name, "a list of texts")
        return tuple(
            item if isinstance(item, str) else self._refuse(name, "a list of texts")
            for item in value
        )

    def text_map(self, name: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        value = self._fields.get(name)
        if not isinstance(value, dict):
            self._refuse(name, "an object of texts")
        return {
            key: item if isinstance(item, str) else self._refuse(name, "an object of texts")
            for key, item in value.items()
        }

    def _refuse(self, name: str, what: str) -> NoReturn:
        raise Corruption(f"field {name!r} of a document is not {what}", path=self._path)
