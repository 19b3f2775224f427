"""Metadata of plain Iceberg tables: made, changed and checked as a catalog does it.

PyIceberg knows the rules of updates and requirements; this module brings its models and neve's
errors together. Documents are bytes of JSON on both sides.

    create request ──► new_document ──► document
    document, requirements, updates ──► changed_document ──► the next document

PyIceberg is loaded with the first call, as in `neve.iceberg.pyiceberg_bridge`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from neve.errors import CatalogConflict, InvalidArgument, SchemaMismatch
from neve.iceberg.pyiceberg_bridge import load
from neve.model.schema_json import Json, JsonObject, dump_compact

_FORMAT_DEFAULT: Final = "2"
_FORMAT_NEWEST: Final = 3
# Members that PyIceberg does not know and that no update here changes.
_CARRIED: Final = ("encryption-keys",)


def new_document(
    request: Mapping[str, Json], *, location: str, table_uuid: str, properties: Mapping[str, str]
) -> bytes:
    """Return the first document of a table that a client asked for; raises InvalidArgument.

    Column ids are assigned again, from 1 on.
    """
    metadata = load("pyiceberg.table.metadata")
    given = dict(properties)
    with _refusals():
        schema = load("pyiceberg.schema").Schema.model_validate(request.get("schema"))
        partitioning = load("pyiceberg.partitioning")
        sorting = load("pyiceberg.table.sorting")
        spec = request.get("partition-spec")
        order = request.get("write-order")
        _check_format(given.get("format-version", _FORMAT_DEFAULT))
        made = metadata.new_table_metadata(
            schema=schema,
            partition_spec=partitioning.UNPARTITIONED_PARTITION_SPEC
            if spec is None
            else partitioning.PartitionSpec.model_validate(spec),
            sort_order=sorting.UNSORTED_SORT_ORDER
            if order is None
            else sorting.SortOrder.model_validate(order),
            location=location,
            properties=given,
            table_uuid=load("uuid").UUID(table_uuid),
        )
        return _dumped(made)


def changed_document(
    document: bytes | None,
    requirements: Sequence[Json],
    updates: Sequence[Json],
    *,
    document_location: str | None = None,
) -> bytes:
    """Return the document after some updates; None as a document begins a new table.

    Raises CatalogConflict for a requirement that is not met, and InvalidArgument for updates that
    are unknown or impossible.
    """
    module = load("pyiceberg.table.update")
    metadata = load("pyiceberg.table.metadata")
    with _refusals():
        asked = tuple(_adapter("TableUpdate").validate_python(each) for each in updates)
        base = None if document is None else _read(document)
        for each in _requirements(requirements):
            each.validate(base)
        start = base
        if start is None:
            schema = load("pyiceberg.schema").Schema()
            start = metadata.TableMetadataV1.model_construct(last_column_id=-1, schema=schema)
        changed = module.update_table_metadata(
            base_metadata=start,
            updates=asked,
            enforce_validation=base is None,
            metadata_location=document_location,
        )
        _check_format(str(changed.format_version))
        return _dumped(changed, document)


def check_requirements(document: bytes | None, requirements: Sequence[Json]) -> None:
    """Raise CatalogConflict for a requirement that a document does not meet."""
    with _refusals():
        base = None if document is None else _read(document)
        for each in _requirements(requirements):
            each.validate(base)


def check_document(document: bytes) -> JsonObject:
    """Return a document of any writer, after checking that it is one; raises InvalidArgument."""
    with _refusals("the file is not the metadata of an Iceberg table", "Check the location"):
        _read(document)
        members: JsonObject = json.loads(document)
        return members


def arrow_schema_of(document: bytes) -> pa.Schema:
    """Return the current columns of a table."""
    arrow_io = load("pyiceberg.io.pyarrow")
    schema: pa.Schema = arrow_io.schema_to_pyarrow(_read(document).schema())
    return schema


def read_location(location: str) -> bytes:
    """Read a file of another writer, wherever it is; raises InvalidArgument."""
    try:
        file_io = load("pyiceberg.io").load_file_io({}, location)
        with file_io.new_input(location).open() as stream:
            payload: bytes = stream.read()
    except Exception as error:  # a library may raise anything for a place it cannot read
        raise InvalidArgument(
            f"the file cannot be read: {error}", path=location, hint="Check the location"
        ) from error
    return payload


def scan_rows(
    location: str, document: bytes, *, columns: Sequence[str] | None, limit: int | None
) -> pa.Table:
    """Read the live rows of a table of another writer."""
    table = load("pyiceberg.table")
    static = table.StaticTable(
        identifier=("guest",),
        metadata=_read(document),
        metadata_location=location,
        io=load("pyiceberg.io").load_file_io({}, location),
        catalog=load("pyiceberg.catalog.noop").NoopCatalog("guest"),
    )
    fields = ("*",) if columns is None else tuple(columns)
    rows: pa.Table = static.scan(selected_fields=fields, limit=limit).to_arrow()
    return rows


def _check_format(text: str) -> None:
    if not text.isdecimal() or not 1 <= int(text) <= _FORMAT_NEWEST:
        raise InvalidArgument(
            f"format version {text[:20]!a} is unknown", hint="Use 1, 2 or 3 as format-version"
        )


def _requirements(given: Sequence[Json]) -> list[Any]:
    adapter = _adapter("TableRequirement")
    return [adapter.validate_python(each) for each in given]


@lru_cache(maxsize=2)
def _adapter(name: str) -> Any:  # noqa: ANN401 - PyIceberg's own
    return load("pydantic").TypeAdapter(getattr(load("pyiceberg.table.update"), name))


def _read(document: bytes) -> Any:  # noqa: ANN401 - PyIceberg's own
    return load("pyiceberg.table.metadata").TableMetadataUtil.parse_raw(document)


def _dumped(metadata: Any, base: bytes | None = None) -> bytes:  # noqa: ANN401 - PyIceberg's own
    # PyIceberg refuses to write format 3, because it cannot write its manifests. A catalog writes
    # none, and its model of the document is whole.
    text = load("pyiceberg.typedef").IcebergBaseModel.model_dump_json(metadata)
    document: JsonObject = json.loads(text)
    for name in _CARRIED:
        found = None if base is None else json.loads(base).get(name)
        if found is not None:
            document[name] = found
    if metadata.format_version >= _FORMAT_NEWEST and document.get("next-row-id") is None:
        document["next-row-id"] = max(
            ((each.first_row_id or 0) + (each.added_rows or 0) for each in metadata.snapshots),
            default=0,
        )
    return dump_compact(document)


@contextmanager
def _refusals(
    what: str = "the request is not valid",
    hint: str = "Compare it with Iceberg's REST specification",
) -> Iterator[None]:
    """Turn what PyIceberg raises for a request or a file into neve's errors."""
    failed = load("pyiceberg.exceptions").CommitFailedException
    try:
        yield
    except failed as error:
        raise CatalogConflict(str(error), hint="Load the table again") from error
    except (InvalidArgument, SchemaMismatch):
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise InvalidArgument(f"{what}: {_reason(error)}", hint=hint) from error
    except Exception as error:
        if not type(error).__module__.startswith("pyiceberg."):
            raise
        raise InvalidArgument(f"{what}: {_reason(error)}", hint=hint) from error


def _reason(error: Exception) -> str:
    """Return what is wrong, in one line; Pydantic's own text quotes what it read."""
    text = str(error)
    invalid = load("pydantic").ValidationError
    origin = next((each for each in (error, error.__cause__) if isinstance(each, invalid)), None)
    if origin is not None:
        found = origin.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else each["msg"]
            for each in found
        )
    return " ".join(text.split())[:300]
