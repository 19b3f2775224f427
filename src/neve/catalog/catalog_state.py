"""CatalogState: the root of the catalog, with all names and the ordinal of the next table.

It is one JSON document under the key `root` of the catalog's manifest store:

    {"format": 1, "next_ordinal": 3,
     "namespaces": {"shop": {"owner": "anna"}, "shop.eu": {}},
     "tables": {"shop.orders": "t000001-9f86d081884c", "shop.eu.items": "t000002-2c26b46b68ff"}}

A lake with guest tables has format 2, and their uuids by name in `guests`: a neve that does not
know guests must not write the root without them.

CATALOG-14  A table id is `t`, an ordinal that is never reused, and the beginning of the table's
            uuid. It is in every path of the table; the name is in none, so a rename moves nothing.
CATALOG-15  Every table's namespace exists, and so does every parent of a namespace.
CATALOG-16  An id has one name, and a name belongs to a table or to a guest, not to both.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn
from uuid import UUID

from neve.catalog.table_name import (
    TableName,
    check_name_text,
    check_namespace,
    with_ancestors,
)
from neve.errors import AlreadyExists, Corruption, InvalidArgument, NotFound, Phrase, Wording
from neve.manifest.json_document import Document, write_document
from neve.model.schema_json import Json
from neve.model.suggestions import similar_name_hint
from neve.storage.table_paths import check_name


class CatalogDocument(Document):
    """A document whose members may be objects; raises Corruption for what does not fit."""

    def text_maps(self, name: str) -> dict[str, dict[str, str]]:
        """Return an object of objects of texts."""
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
        raise Corruption(f"field {name!r} of a catalog document has a wrong type", path=self._path)


def read_catalog_document(payload: bytes, *, format_number: int, path: str) -> CatalogDocument:
    """Parse a document of a format up to `format_number`; raises Corruption."""
    document = CatalogDocument.read(payload, format_number=format_number, path=path)
    assert isinstance(document, CatalogDocument), "read makes the class it is called on"
    return document


ROOT_KEY: Final = "root"

_FORMAT: Final = 1
_FORMAT_WITH_GUESTS: Final = 2
_ORDINAL_DIGITS: Final = 6
_UUID_DIGITS: Final = 12
_TABLE_ID: Final = re.compile(r"t([0-9]{6}|[1-9][0-9]{6,17})-[0-9a-f]{12}")


def make_table_id(ordinal: int, table_uuid: UUID) -> str:
    """Spell the id of a table (CATALOG-14)."""
    return f"t{ordinal:0{_ORDINAL_DIGITS}d}-{table_uuid.hex[:_UUID_DIGITS]}"


def is_table_id(text: str) -> bool:
    """Return whether a text has the form of a table id, and so is safe in a path."""
    return _TABLE_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogState:
    """The names of a lake; every change makes a new value."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Properties by namespace."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Table ids by dotted name."""
    next_ordinal: int = 1
    guests: Mapping[str, str] = field(default_factory=dict)
    """Uuids of guest tables by dotted name."""

    def encode(self) -> bytes:
        """Bytes of the document."""
        members: dict[str, Json] = {
            "next_ordinal": self.next_ordinal,
            "namespaces": {name: {**given} for name, given in self.namespaces.items()},
            "tables": {**self.tables},
        }
        if self.guests:
            members["guests"] = {**self.guests}
        return write_document(_FORMAT_WITH_GUESTS if self.guests else _FORMAT, members)

    @classmethod
    def decode(cls, payload: bytes, *, path: str) -> "CatalogState":
        """Read the document; raises Corruption."""
        document = read_catalog_document(payload, format_number=_FORMAT_WITH_GUESTS, path=path)
        state = cls(
            namespaces=document.text_maps("namespaces"),
            tables=document.text_map("tables"),
            next_ordinal=document.integer("next_ordinal"),
            guests=document.text_map("guests") if document.integer("format") > _FORMAT else {},
        )
        try:
            state._check()
        except InvalidArgument as error:
            raise Corruption(
                f"the catalog's root is invalid: {error.message}", path=path
            ) from error
        return state

    def table_id(self, name: str) -> str:
        """Return the id of a table; raises NotFound with the most similar name."""
        found = self.tables.get(name)
        if found is None:
            raise NotFound(
                f"there is no table {name!a}",
                hint=similar_name_hint(name, self.tables) or Wording(Phrase.LIST_TABLES),
            )
        return found

    def check_guest(self, name: str) -> None:
        """Raise NotFound, with the most similar name, when there is no such guest."""
        if name not in self.guests:
            raise NotFound(
                f"there is no guest table {name!a}",
                hint=similar_name_hint(name, self.guests) or "`lake.guests.names()` lists them",
            )

    def name_of(self, table_id: str) -> str | None:
        """Return the name of a table, or None."""
        return next((name for name, found in self.tables.items() if found == table_id), None)

    def tables_in(self, namespace: str) -> list[str]:
        """Return the names of the tables directly in a namespace, ascending; raises NotFound."""
        self._check_namespace_is_there(namespace)
        return sorted(name for name in self.tables if name.rpartition(".")[0] == namespace)

    def guests_in(self, namespace: str) -> list[str]:
        """Return the names of the guests directly in a namespace, ascending; raises NotFound."""
        self._check_namespace_is_there(namespace)
        return sorted(name for name in self.guests if name.rpartition(".")[0] == namespace)

    def namespaces_below(self, namespace: str) -> list[str]:
        """Return the namespaces inside one, at any depth, ascending; raises NotFound."""
        self._check_namespace_is_there(namespace)
        return sorted(name for name in self.namespaces if name.startswith(f"{namespace}."))

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Return the properties of a namespace; raises NotFound."""
        self._check_namespace_is_there(namespace)
        return dict(self.namespaces[namespace])

    def with_namespace(self, namespace: str, properties: Mapping[str, str]) -> "CatalogState":
        """Add a namespace and its parents; raises AlreadyExists."""
        if namespace in self.namespaces:
            raise AlreadyExists(f"the namespace {namespace!a} already exists")
        grown = self._with_namespaces_of(namespace)
        return replace(grown, namespaces={**grown.namespaces, namespace: {**properties}})

    def with_properties(
        self, namespace: str, given: Mapping[str, str], removed: Iterable[str]
    ) -> "CatalogState":
        """Set and remove properties of a namespace; raises NotFound."""
        gone = set(removed)
        before = self.namespace_properties(namespace)
        after = {name: value for name, value in before.items() if name not in gone} | {**given}
        return replace(self, namespaces={**self.namespaces, namespace: after})

    def without_namespace(self, namespace: str) -> "CatalogState":
        """Remove an empty namespace; raises NotFound, InvalidArgument."""
        inside = [
            *self.tables_in(namespace),
            *self.guests_in(namespace),
            *self.namespaces_below(namespace),
        ]
        if inside:
            raise InvalidArgument(
                f"the namespace {namespace!a} is not empty: {_some_of(inside)}",
                hint="Drop its tables and namespaces, or rename its tables into another namespace",
            )
        kept = {name: given for name, given in self.namespaces.items() if name != namespace}
        return replace(self, namespaces=kept)

    def with_table(self, name: TableName, table_uuid: UUID) -> "CatalogState":
        """Add a table under the next id, and its namespace when missing; raises AlreadyExists."""
        self._refuse_taken(name, way_out="pass exists_ok=True, drop it")
        table_id = make_table_id(self.next_ordinal, table_uuid)
        return replace(
            self._with_namespaces_of(name.namespace),
            tables={**self.tables, str(name): table_id},
            next_ordinal=self.next_ordinal + 1,
        )

    def with_guest(self, name: TableName, table_uuid: str) -> "CatalogState":
        """Add a guest, and its namespace when missing; raises AlreadyExists."""
        self._refuse_taken(name)
        return replace(
            self._with_namespaces_of(name.namespace), guests={**self.guests, str(name): table_uuid}
        )

    def without_guest(self, name: str) -> "CatalogState":
        """Remove a guest; raises NotFound."""
        self.check_guest(name)
        return replace(self, guests={key: id_ for key, id_ in self.guests.items() if key != name})

    def without_table(self, table_id: str) -> "CatalogState":
        """Remove the name of a table."""
        kept = {name: found for name, found in self.tables.items() if found != table_id}
        return replace(self, tables=kept)

    def with_renamed(self, old: TableName, new: TableName) -> "CatalogState":
        """Rename a table; raises NotFound, AlreadyExists."""
        table_id = self.table_id(str(old))
        self._refuse_taken(new)
        kept = {name: found for name, found in self.tables.items() if found != table_id}
        return replace(self._with_namespaces_of(new.namespace), tables={**kept, str(new): table_id})

    def _with_namespaces_of(self, namespace: str) -> "CatalogState":
        needed = {name: dict[str, str]() for name in with_ancestors(namespace)}
        return replace(self, namespaces={**needed, **self.namespaces})

    def _refuse_taken(self, name: TableName, *, way_out: str = "drop it") -> None:
        if str(name) in self.tables:
            raise AlreadyExists(
                f"the table {str(name)!a} already exists",
                hint=Wording(Phrase.TABLE_IS_THERE, name=str(name), way_out=way_out),
            )
        if str(name) in self.guests:
            raise AlreadyExists(
                f"the guest table {str(name)!a} already exists",
                hint="Drop it with `lake.guests.drop`, adopt it, or choose another name",
            )

    def _check_namespace_is_there(self, namespace: str) -> None:
        check_name_text(namespace, what="namespace")
        if namespace not in self.namespaces:
            raise NotFound(
                f"there is no namespace {namespace!a}",
                hint=similar_name_hint(namespace, self.namespaces)
                or Wording(Phrase.LIST_NAMESPACES),
            )

    def _check(self) -> None:
        """Check CATALOG-14 to CATALOG-16."""
        for namespace in self.namespaces:
            check_namespace(namespace)
            parent = namespace.rpartition(".")[0]
            if parent and parent not in self.namespaces:
                raise InvalidArgument(f"CATALOG-15: the namespace {parent!a} is missing")
        for name, table_id in self.tables.items():
            ordinal = _TABLE_ID.fullmatch(table_id)
            if ordinal is None or int(ordinal[1]) >= self.next_ordinal:
                raise InvalidArgument(f"CATALOG-14: table {name!a} has the id {table_id[:40]!a}")
            namespace, _, table = name.rpartition(".")
            if namespace not in self.namespaces:
                raise InvalidArgument(f"CATALOG-15: the namespace of {name!a} is missing")
            check_name(table, what="table name")
        for name in self.guests:
            namespace, _, table = name.rpartition(".")
            if namespace not in self.namespaces:
                raise InvalidArgument(f"CATALOG-15: the namespace of {name!a} is missing")
            check_name(table, what="table name")
            if name in self.tables:
                raise InvalidArgument(f"CATALOG-16: {name!a} is a table and a guest")
        if len(set(self.tables.values())) < len(self.tables):
            raise InvalidArgument("CATALOG-16: two tables have the same id")


def _some_of(names: Iterable[str]) -> str:
    shown_max = 3
    names = list(names)
    more = len(names) - shown_max
    return ", ".join(map(ascii, names[:shown_max])) + (f" and {more:,} more" if more > 0 else "")
