"""Documents of the catalog: those of a manifest store, and objects inside of them."""

from collections.abc import Mapping
from typing import NoReturn

from neve.errors import Corruption
from neve.manifest.json_document import Document, Json


class CatalogDocument(Document):
    """A document whose members may be objects; what does not fit is Corruption."""

    def text_maps(self, name: str) -> dict[str, dict[str, str]]:
        """Return an object of objects whose values are texts."""
        value = self._fields.get(name)
        if not isinstance(value, dict):
            self._misfit(name)
        return {key: self._texts_of(name, item) for key, item in value.items()}

    def objects(self, name: str) -> list[Mapping[str, Json]]:
        """Return a list of objects."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            self._misfit(name)
        return [item if isinstance(item, dict) else self._misfit(name) for item in value]

    def _texts_of(self, name: str, value: Json) -> dict[str, str]:
        if not isinstance(value, dict):
            self._misfit(name)
        return {
            key: item if isinstance(item, str) else self._misfit(name)
            for key, item in value.items()
        }

    def _misfit(self, name: str) -> NoReturn:
        raise Corruption(f"field {name!r} of a catalog document has another form", path=self._path)


def read_catalog_document(payload: bytes, *, format_number: int, path: str) -> CatalogDocument:
    """Parse a document of a format up to `format_number`; raises Corruption."""
    document = CatalogDocument.read(payload, format_number=format_number, path=path)
    assert isinstance(document, CatalogDocument), "read makes the class it is called on"
    return document
