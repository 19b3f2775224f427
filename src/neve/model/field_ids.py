"""Names and ids of fields, nested ones included: walking, checking and assigning them.

The rules are those numbered in `neve.model.schema`; errors cite them.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from neve.errors import InvalidArgument, LimitExceeded
from neve.model.arrow_types import (
    ArrowField,
    child_fields,
    doc_of,
    field_id_of,
    field_metadata,
    with_child_fields,
)
from neve.model.display import shown
from neve.model.row_lineage import LINEAGE_NAMES

FIELDS_MAX: Final = 10_000
NAME_BYTES_MAX: Final = 255
# Iceberg keeps the 200 ids above this for its metadata columns.
FIELD_ID_MAX: Final = 2_147_483_447

_RESERVED_NAMES: Final = frozenset(LINEAGE_NAMES)
_RESERVED_PREFIX: Final = "_neve"


def walk_fields(
    fields: tuple[ArrowField, ...], *, below: str = ""
) -> Iterator[tuple[str, ArrowField]]:
    """Yield every field with its full name, a field before its children."""
    for field in fields:
        path = f"{below}{field.name}"
        yield path, field
        yield from walk_fields(child_fields(field.type), below=f"{path}.")


def with_fresh_ids(fields: tuple[ArrowField, ...], ids: Iterator[int]) -> tuple[ArrowField, ...]:
    """Assign ids as Iceberg does: to all these fields first, then inside each of them in turn."""
    own_ids = [next(ids) for _ in fields]
    return tuple(
        pa.field(
            field.name,
            _with_fresh_ids_inside(field.type, ids),
            nullable=field.nullable,
            metadata=field_metadata(field_id=own_id, doc=doc_of(field)),
        )
        for own_id, field in zip(own_ids, fields, strict=True)
    )


def have_unique_ids(fields: tuple[ArrowField, ...]) -> bool:
    """Return whether every field has a valid id that no other field has."""
    seen: set[int] = set()
    for _, field in walk_fields(fields):
        field_id = field_id_of(field)
        if field_id is None or field_id in seen or not 1 <= field_id <= FIELD_ID_MAX:
            return False
        seen.add(field_id)
    return True


def check_fields(fields: tuple[ArrowField, ...], *, last_field_id: int) -> None:
    """Check MODEL-1 and MODEL-2 for the fields of a whole schema."""
    if not fields:
        raise InvalidArgument("MODEL-1: a table without columns", hint="Add at least a key column")
    if not 1 <= last_field_id <= FIELD_ID_MAX:
        raise InvalidArgument(
            f"MODEL-1: last field id {shown(last_field_id)} is not in 1 to {FIELD_ID_MAX}"
        )
    names: set[str] = set()
    ids: dict[int, str] = {}
    for path, field in walk_fields(fields):
        if len(names) == FIELDS_MAX:
            raise too_many_fields(FIELDS_MAX + 1)
        check_name(field.name, where=path)
        if path in names:
            raise InvalidArgument(
                f"MODEL-2: two fields are named {shown(path)}", hint="Rename one of them"
            )
        names.add(path)
        field_id = field_id_of(field)
        if field_id is None or not 1 <= field_id <= last_field_id:
            raise InvalidArgument(
                f"MODEL-1: field {shown(path)} has id {field_id}, not one of 1 to {last_field_id}"
            )
        if field_id in ids:
            raise InvalidArgument(
                f"MODEL-1: fields {shown(ids[field_id])} and {shown(path)} share id {field_id}"
            )
        ids[field_id] = path


def check_name(name: str, *, where: str) -> None:
    """Check MODEL-2 for one name."""
    check_text(name, what=f"name {shown(where)}")
    size = len(name.encode())
    if not 1 <= size <= NAME_BYTES_MAX or "\0" in name:
        found = "holds a NUL" if "\0" in name else f"takes {size} bytes"
        raise InvalidArgument(
            f"MODEL-2: the name of field {shown(where)} {found}",
            hint=f"Use 1 to {NAME_BYTES_MAX} bytes of UTF-8 without NUL",
        )


def check_not_reserved(name: str) -> None:
    """Check MODEL-3 for the name of a column."""
    if name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIX):
        raise InvalidArgument(
            f"MODEL-3: column name {shown(name)} is reserved",
            hint=f"Rename it: Iceberg's row lineage and names in {_RESERVED_PREFIX}… are taken",
        )


def check_text(text: str, *, what: str) -> None:
    """Check that text can be written as UTF-8 at all."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} holds a lone surrogate") from error


def too_many_fields(count: int) -> LimitExceeded:
    """Return the error for a schema with too many fields for MODEL-1."""
    return LimitExceeded(
        f"MODEL-1: a schema has {count} fields or more",
        limit=FIELDS_MAX,
        actual=count,
        hint="Split the table, or keep rare fields in a map",
    )


def _with_fresh_ids_inside(arrow_type: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    fields = child_fields(arrow_type)
    return with_child_fields(arrow_type, with_fresh_ids(fields, ids)) if fields else arrow_type
