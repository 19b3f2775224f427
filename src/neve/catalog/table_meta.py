"""TableMeta: the catalog's record of a table, under the key `__tables/<namespace.name>`.

It is one JSON document. Schemas and specs are objects in Iceberg's form:

    {"format": 1, "name": "shop.orders", "table_id": "t000001-9f86d081884c", "table_uuid": "9f86d…",
     "format_version": 3, "location": "tables/t000001-9f86d081884c", "updated_ms": 1700000000000,
     "schemas": [{"schema-id": 0, …}], "schema_version": 0, "fingerprint": "7a3c…",
     "specs": [{"spec-id": 0, "fields": […]}], "spec_id": 0, "sort_order": "id",
     "primary_key": ["id"], "properties": {"owner": "anna"},
     "retention_versions": 5, "retention_ms": 86400000, "as_of_version": 1}

CATALOG-22  Schemas, specs, sort order and retention are a copy: the table's version store is the
            truth, and opening the table brings the copy up to date.
CATALOG-23  Name, location and properties belong to the catalog. The location is relative to the
            lake, so that a lake can be moved.
CATALOG-24  `schema_version`, `fingerprint` and `primary_key` match the current schema.
CATALOG-25  The newest schemas stay as long as there is room; the version store has all.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from uuid import UUID

from neve.catalog.catalog_state import read_catalog_document
from neve.catalog.known_properties import check_texts, format_version_of, retention_of
from neve.errors import Corruption, NeveError
from neve.manifest.json_document import write_document
from neve.manifest.table_head import Retention
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.schema_json import Json
from neve.storage.table_paths import TablePaths

META_PREFIX: Final = "__tables/"

_FORMAT: Final = 1
_SCHEMAS_BYTES_MAX: Final = 4 << 20


def meta_key(name: str) -> str:
    """Key of a table's document."""
    return f"{META_PREFIX}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMeta:
    """A table as the catalog shows it."""

    name: str
    table_id: str
    table_uuid: str
    schemas: tuple[TableSchema, ...]
    """Ascending by id."""
    schema_version: int
    """Id of the current schema; it increases with every change."""
    specs: tuple[PartitionSpec, ...]
    """Ascending by id."""
    spec_id: int
    sort_order: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    retention: Retention = field(default_factory=Retention)
    updated_ms: int = 0
    """When the catalog's own part last changed."""
    as_of_version: int = 1
    """The Version that the copied parts come from."""

    @property
    def schema(self) -> TableSchema:
        """The current schema."""
        return next(each for each in self.schemas if each.schema_id == self.schema_version)

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return next(each for each in self.specs if each.spec_id == self.spec_id)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return tuple(column.name for column in self.schema.key_columns)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the current schema, in hex."""
        return self.schema.fingerprint()

    @property
    def format_version(self) -> int:
        """Iceberg's format version."""
        return format_version_of(self.properties)

    @property
    def location(self) -> str:
        """Directory of the table's files, relative to the lake."""
        return TablePaths(self.table_id).root

    def encode(self) -> bytes:
        """Bytes of the document; raises LimitExceeded."""
        return write_document(
            _FORMAT,
            {
                "name": self.name,
                "table_id": self.table_id,
                "table_uuid": self.table_uuid,
                "format_version": self.format_version,
                "location": self.location,
                "updated_ms": self.updated_ms,
                "schemas": _newest_that_fit(self.schemas, self.schema_version),
                "schema_version": self.schema_version,
                "fingerprint": self.fingerprint,
                "specs": [_parsed(spec.to_json()) for spec in self.specs],
                "spec_id": self.spec_id,
                "sort_order": self.sort_order,
                "primary_key": list(self.primary_key),
                "properties": {**self.properties},
                "retention_versions": self.retention.versions,
                "retention_ms": self.retention.milliseconds,
                "as_of_version": self.as_of_version,
            },
        )

    @classmethod
    @lru_cache(maxsize=1_024)  # commits and listings read the same bytes several times
    def decode(cls, payload: bytes, *, path: str) -> "TableMeta":
        """Read the document; raises Corruption."""
        document = read_catalog_document(payload, format_number=_FORMAT, path=path)
        try:
            meta = cls(
                name=document.text("name"),
                table_id=document.text("table_id"),
                table_uuid=str(UUID(document.text("table_uuid"))),
                schemas=tuple(
                    TableSchema.from_json(_canonical(each)) for each in document.objects("schemas")
                ),
                schema_version=document.integer("schema_version"),
                specs=tuple(
                    PartitionSpec.from_json(json.dumps(each)) for each in document.objects("specs")
                ),
                spec_id=document.integer("spec_id"),
                sort_order=document.text("sort_order"),
                properties=check_texts(document.text_map("properties")),
                retention=Retention(
                    versions=document.integer("retention_versions"),
                    milliseconds=document.integer("retention_ms"),
                ),
                updated_ms=document.integer("updated_ms"),
                as_of_version=document.integer("as_of_version"),
            )
            meta._check(
                document.text("fingerprint"),
                document.texts("primary_key"),
                document.integer("format_version"),
            )
        except (NeveError, ValueError, StopIteration) as error:
            reason = error.message if isinstance(error, NeveError) else error
            raise Corruption(f"a table's definition is invalid: {reason}", path=path) from error
        return meta

    def _check(self, fingerprint: str, primary_key: Iterable[str], format_version: int) -> None:
        """Check that the parts match each other (CATALOG-24)."""
        if self.fingerprint != fingerprint or self.primary_key != tuple(primary_key):
            raise ValueError("CATALOG-24: the schema does not match its fingerprint and key")
        if self.format_version != format_version:
            raise ValueError("the format version does not match the properties")
        retention_of(self.properties)
        if self.spec.spec_id != self.spec_id or not self.location:
            raise ValueError("it has no current partition spec")


def _newest_that_fit(schemas: tuple[TableSchema, ...], current_id: int) -> list[Json]:
    """Return the newest schemas as objects, ascending, as many as fit (CATALOG-25)."""
    texts: list[str] = []
    room = _SCHEMAS_BYTES_MAX
    for schema in reversed(schemas):
        text = schema.to_json()
        room -= len(text)
        if room >= 0 or schema.schema_id == current_id:
            texts.append(text)
    return [_parsed(text) for text in reversed(texts)]


def _canonical(value: Mapping[str, Json]) -> str:
    """Return the text that `TableSchema.to_json` has too, so that it is parsed once."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _parsed(text: str) -> Json:
    value: Json = json.loads(text)
    return value
