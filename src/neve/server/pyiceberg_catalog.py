"""NeveCatalog: a lake as a catalog of PyIceberg, without a server.

    catalog = load_catalog("lake", **{
        "py-catalog-impl": "neve.server.pyiceberg_catalog.NeveCatalog",
        "warehouse": "./lake",
    })

It does in the process what the REST server does for others, with the same code: tables with a
primary key take commits as rows, others are guests. Names that begin with `neve.` are options:
`neve.storage.<name>` is a storage option of the lake.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from pyiceberg.catalog import Catalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from neve.catalog.lake import open_lake
from neve.errors import NeveError
from neve.model.schema_json import JsonObject
from neve.server.error_model import (
    COMMIT_FAILED,
    EXISTS,
    NO_NAMESPACE,
    NO_TABLE,
    NOT_EMPTY,
    UNKNOWN_STATE,
    RequestRefused,
    refusal_of,
)
from neve.server.lake_catalog import LakeCatalog, TableChange
from neve.server.rest_names import Namespace, TableRef

_STORAGE: Final = "neve.storage."
_KINDS: Final = {
    NO_TABLE: NoSuchTableError,
    NO_NAMESPACE: NoSuchNamespaceError,
    NOT_EMPTY: NamespaceNotEmptyError,
    COMMIT_FAILED: CommitFailedException,
    UNKNOWN_STATE: CommitStateUnknownException,
}


@contextmanager
def _raised(exists: type[Exception] = TableAlreadyExistsError) -> Iterator[None]:
    """Raise PyIceberg's errors for neve's."""
    try:
        yield
    except (NeveError, RequestRefused) as error:
        refused = refusal_of(error)
        kind: type[Exception] = _KINDS.get(refused.kind, RESTError)
        if refused.kind == EXISTS:
            kind = exists
        elif refused.status == HTTPStatus.BAD_REQUEST:
            kind = ValidationError
        raise kind(refused.message) from error


class NeveCatalog(Catalog):
    """The tables of a lake for PyIceberg; its `warehouse` is the location of the lake."""

    def __init__(self, name: str, **properties: str) -> None:
        """Open the lake; raises NotFound when there is none, unless `neve.create` is true."""
        super().__init__(name, **properties)
        options = {
            key.removeprefix(_STORAGE): value
            for key, value in properties.items()
            if key.startswith(_STORAGE)
        }
        self._lake = open_lake(
            properties["warehouse"],
            storage_options=options or None,
            create=properties.get("neve.create", "false").lower() == "true",
        )
        self._catalog = LakeCatalog(self._lake)

    def close(self) -> None:
        """Close the lake."""
        self._lake.close()

    def supports_server_side_planning(self) -> bool:
        """Return False: PyIceberg plans scans itself."""
        return False

    # Namespaces

    def create_namespace(self, namespace: Any, properties: Any = None) -> None:  # noqa: ANN401
        """Make a namespace."""
        with _raised(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._namespace(namespace), properties or {})

    def drop_namespace(self, namespace: Any) -> None:  # noqa: ANN401
        """Remove an empty namespace."""
        with _raised():
            self._catalog.drop_namespace(self._namespace(namespace))

    def list_namespaces(self, namespace: Any = ()) -> list[tuple[str, ...]]:  # noqa: ANN401
        """Return the namespaces directly below one."""
        with _raised():
            parent = self._namespace(namespace) if namespace else None
            names = self._catalog.list_namespaces(parent).names
            return [Namespace.of_dotted(name).levels for name in names]

    def namespace_exists(self, namespace: Any) -> bool:  # noqa: ANN401
        """Return whether a namespace exists."""
        try:
            self.load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            return False
        return True

    def load_namespace_properties(self, namespace: Any) -> dict[str, str]:  # noqa: ANN401
        """Return the properties of a namespace."""
        with _raised():
            return self._catalog.namespace_properties(self._namespace(namespace))

    def update_namespace_properties(
        self,
        namespace: Any,  # noqa: ANN401
        removals: set[str] | None = None,
        updates: Any = None,  # noqa: ANN401
    ) -> PropertiesUpdateSummary:
        """Change properties of a namespace."""
        with _raised():
            done = self._catalog.change_namespace(
                self._namespace(namespace), updates or {}, sorted(removals or ())
            )
            return PropertiesUpdateSummary(**done)

    # Tables

    def list_tables(self, namespace: Any) -> list[tuple[str, ...]]:  # noqa: ANN401
        """Return the tables in a namespace, guests included."""
        with _raised():
            names = self._catalog.list_tables(self._namespace(namespace)).names
            refs = map(TableRef.of_dotted, names)
            return [(*ref.namespace.levels, ref.name) for ref in refs]

    def table_exists(self, identifier: Any) -> bool:  # noqa: ANN401
        """Return whether a table exists."""
        return self._catalog.table_exists(self._ref(identifier))

    def load_table(self, identifier: Any) -> Table:  # noqa: ANN401
        """Return a table, with its newest commit."""
        with _raised():
            ref = self._ref(identifier)
            return self._table(ref, self._catalog.load_table(ref).body)

    def create_table(  # noqa: PLR0917 - PyIceberg's signature
        self,
        identifier: Any,  # noqa: ANN401
        schema: Any,  # noqa: ANN401
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,  # noqa: ANN401
        sort_order: Any = UNSORTED_SORT_ORDER,  # noqa: ANN401
        properties: Any = None,  # noqa: ANN401
    ) -> Table:
        """Make a table; the property `neve.primary-key` makes it one of neve."""
        ref = self._ref(identifier)
        request = self._request(ref, schema, location, partition_spec, sort_order, properties)
        with _raised():
            return self._table(ref, self._catalog.create_table(ref.namespace, request))

    def create_table_transaction(  # noqa: PLR0917 - PyIceberg's signature
        self,
        identifier: Any,  # noqa: ANN401
        schema: Any,  # noqa: ANN401
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,  # noqa: ANN401
        sort_order: Any = UNSORTED_SORT_ORDER,  # noqa: ANN401
        properties: Any = None,  # noqa: ANN401
    ) -> CreateTableTransaction:
        """Prepare a table that its first commit makes."""
        ref = self._ref(identifier)
        request = self._request(ref, schema, location, partition_spec, sort_order, properties)
        with _raised():
            body = self._catalog.create_table(ref.namespace, {**request, "stage-create": True})
        metadata = TableMetadataUtil.parse_obj(json.loads(body)["metadata"])
        staged = StagedTable(
            identifier=(*ref.namespace.levels, ref.name),
            metadata=metadata,
            metadata_location="",
            io=self._load_file_io(location=metadata.location),
            catalog=self,
        )
        return CreateTableTransaction(staged)

    def register_table(
        self,
        identifier: Any,  # noqa: ANN401
        metadata_location: str,
        overwrite: bool = False,
    ) -> Table:
        """Add a guest under a name, by metadata that exists."""
        ref = self._ref(identifier)
        request: JsonObject = {
            "name": ref.name,
            "metadata-location": metadata_location,
            "overwrite": overwrite,
        }
        with _raised():
            return self._table(ref, self._catalog.register_table(ref.namespace, request).body)

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Commit updates of a table."""
        with _raised():
            change = TableChange(
                self._ref(table.name()),
                [json.loads(each.model_dump_json()) for each in requirements],
                [json.loads(each.model_dump_json()) for each in updates],
            )
            body = json.loads(self._catalog.commit(change).body)
        return CommitTableResponse.model_validate(body)

    def drop_table(self, identifier: Any, purge_requested: bool = False) -> None:  # noqa: ANN401
        """Drop a table."""
        with _raised():
            self._catalog.drop_table(self._ref(identifier), purge=purge_requested)

    def purge_table(self, identifier: Any) -> None:  # noqa: ANN401
        """Drop a table and delete its files."""
        self.drop_table(identifier, purge_requested=True)

    def rename_table(self, from_identifier: Any, to_identifier: Any) -> Table:  # noqa: ANN401
        """Rename a table."""
        with _raised():
            self._catalog.rename_table(self._ref(from_identifier), self._ref(to_identifier))
        return self.load_table(to_identifier)

    # Views: a lake has none.

    def list_views(self, namespace: Any) -> list[tuple[str, ...]]:  # noqa: ANN401
        """Return no views."""
        self.load_namespace_properties(namespace)
        return []

    def view_exists(self, identifier: Any) -> bool:  # noqa: ANN401, ARG002
        """Return False."""
        return False

    def load_view(self, identifier: Any) -> Any:  # noqa: ANN401
        """Raise NoSuchViewError."""
        raise NoSuchViewError(f"there is no view {identifier}")

    def drop_view(self, identifier: Any) -> None:  # noqa: ANN401
        """Raise NoSuchViewError."""
        raise NoSuchViewError(f"there is no view {identifier}")

    def create_view(self, *_args: Any, **_options: Any) -> Any:  # noqa: ANN401
        """Raise NotImplementedError."""
        raise NotImplementedError("a lake has no views")

    def register_view(self, *_args: Any, **_options: Any) -> Any:  # noqa: ANN401
        """Raise NotImplementedError."""
        raise NotImplementedError("a lake has no views")

    # Forms of the two sides

    def _namespace(self, given: Any) -> Namespace:  # noqa: ANN401
        return Namespace.of_levels(Catalog.identifier_to_tuple(given))

    def _ref(self, given: Any) -> TableRef:  # noqa: ANN401
        levels = Catalog.identifier_to_tuple(given)
        if len(levels) < 2:  # noqa: PLR2004 - a namespace and a name
            raise NoSuchTableError(f"missing namespace or invalid identifier: {given}")
        return TableRef(Namespace(tuple(levels[:-1])), levels[-1])

    def _request(self, ref: TableRef, schema: Any, *given: Any) -> JsonObject:  # noqa: ANN401
        location, spec, order, properties = given
        request: JsonObject = {
            "name": ref.name,
            "schema": json.loads(self._convert_schema_if_needed(schema).model_dump_json()),
            "partition-spec": json.loads(spec.model_dump_json()),
            "write-order": json.loads(order.model_dump_json()),
            "properties": {name: str(value) for name, value in (properties or {}).items()},
        }
        if location:
            request["location"] = location
        return request

    def _table(self, ref: TableRef, body: bytes) -> Table:
        members = json.loads(body)
        metadata = TableMetadataUtil.parse_obj(members["metadata"])
        location = members["metadata-location"]
        return Table(
            identifier=(*ref.namespace.levels, ref.name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )
