"""How a table's rows are divided into partitions.

As people write it, and as Iceberg keeps it:

    written                source-id  field-id  name        transform
    "day(ts)"                      1      1000  ts_day      day
    "bucket(16, id)"               2      1001  id_bucket   bucket[16]
    "truncate(4, title)"           3      1002  title_trunc truncate[4]
    "x" or "identity(x)"           4      1003  x           identity

S1  Field ids begin at 1000 and mean one source column and transform for ever, in all specs of a
    table: a field that comes back gets its old id and name.
S2  Names, field ids and pairs of column and transform occur once in a spec. One column has at most
    one of year, month, day and hour: the finer one implies the coarser.
S3  A field is named as no other column is, so that both can stand side by side in a listing.
S4  A name is UTF-8 without NUL, no longer than a column's with the ending of its transform.
"""

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.display import shown
from neve.model.field_ids import NAME_BYTES_MAX, check_text
from neve.model.schema_json import (
    JsonObject,
    number_member,
    objects_member,
    parse_object,
    text_member,
)
from neve.model.schema_view import ArrowArray, ColumnView, SchemaView, read_column
from neve.model.transforms import (
    Bucket,
    Identity,
    TimePart,
    TimeUnit,
    Transform,
    Truncate,
    parse_transform,
)

FIRST_FIELD_ID: Final = 1_000
PARTITION_FIELDS_MAX: Final = 100

_ID_MAX: Final = (1 << 31) - 1
# A column's name and the longest ending that a transform gives it.
_NAME_BYTES_MAX: Final = NAME_BYTES_MAX + len("_bucket")
_CALL: Final = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*([0-9]{1,10})\s*,(.*)", re.DOTALL)
_WITH_PARAMETER: Final = ("bucket", "truncate")
_NAMES: Final = ("identity", *TimeUnit, *_WITH_PARAMETER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField:
    """One partition value: a transform of one column."""

    source_id: int
    field_id: int
    name: str
    transform: Transform


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """Fields that together name a partition; none for a table in one piece."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    def __post_init__(self) -> None:
        if len(self.fields) > PARTITION_FIELDS_MAX:
            raise LimitExceeded(
                "too many partition fields",
                limit=PARTITION_FIELDS_MAX,
                actual=len(self.fields),
                hint="Partition by one or two columns: every value makes files of its own",
            )
        if not 0 <= self.spec_id <= _ID_MAX:
            raise InvalidArgument(
                f"partition spec id {shown(self.spec_id)}", hint="Number specs from 0"
            )
        for field in self.fields:
            if not 1 <= field.source_id <= _ID_MAX:
                raise InvalidArgument(
                    f"partition field {shown(field.name)} has source id {shown(field.source_id)}",
                    hint="Name the field id of a column",
                )
            if not FIRST_FIELD_ID <= field.field_id <= _ID_MAX:
                raise InvalidArgument(
                    f"partition field {shown(field.name)} has field id {shown(field.field_id)}",
                    hint=f"Number partition fields from {FIRST_FIELD_ID}: below are columns",
                )
            _check_name(field)
        self._refuse_repeats([field.field_id for field in self.fields], what="field id")
        self._refuse_repeats(
            [(field.source_id, _kind(field.transform)) for field in self.fields],
            what="source column and kind of transform",
        )
        self._refuse_repeats([field.name for field in self.fields], what="name")

    def _refuse_repeats(self, marks: Sequence[object], *, what: str) -> None:
        first_with: dict[object, PartitionField] = {}
        for mark, field in zip(marks, self.fields, strict=True):
            if mark in first_with:
                raise InvalidArgument(
                    f"partition fields {shown(first_with[mark].name)} and {shown(field.name)} have "
                    f"the same {what}",
                    hint="Leave one of them out; of year, month, day and hour keep the finest",
                )
            first_with[mark] = field

    @classmethod
    def parse(
        cls,
        texts: Sequence[str],
        schema: SchemaView,
        *,
        spec_id: int = 0,
        history: Iterable["PartitionSpec"] = (),
    ) -> "PartitionSpec":
        """Read fields such as `day(ts)`; raises InvalidArgument, NotFound.

        `history` holds the specs the table had before: a field of theirs keeps its id and name.
        """
        if isinstance(texts, str):
            raise InvalidArgument(
                "partition fields were given as one text", hint=f"Pass a list: [{texts[:64]!r}]"
            )
        if not isinstance(texts, Iterable):
            raise InvalidArgument(
                f"partition fields are a list, not {type(texts).__name__}", hint="Write ['day(ts)']"
            )
        known = {
            (field.source_id, field.transform): field for spec in history for field in spec.fields
        }
        last_id = max((field.field_id for field in known.values()), default=FIRST_FIELD_ID - 1)
        fields: list[PartitionField] = []
        asked = [_bound_field(text, schema) for text in texts]
        kept = [
            known[each]
            for _, column, transform in asked
            if (each := (column.field_id, transform)) in known
        ]
        for text, column, transform in asked:
            field = known.get((column.field_id, transform))
            if field is None:
                last_id += 1
                # Of another column: one that was named as this one is now.
                taken = {
                    each.name for each in (*kept, *fields) if each.source_id != column.field_id
                }
                field = PartitionField(
                    source_id=column.field_id,
                    field_id=last_id,
                    name=_free_name(_default_name(transform, column.name), taken),
                    transform=transform,
                )
            if field.name in {other.name for other in schema.columns} - {column.name}:
                raise InvalidArgument(
                    f"partition field {shown(text)} would be named {shown(field.name)}, as a "
                    "column is",
                    hint="Rename the column, or partition by another",
                )
            fields.append(field)
        return cls(spec_id, tuple(fields))

    @property
    def is_unpartitioned(self) -> bool:
        """Whether all rows are in one partition."""
        return not self.fields

    def texts(self, schema: SchemaView) -> list[str]:
        """Return the fields as `parse` reads them, under the names that columns have now."""
        return [_text(field, schema.column_by_id(field.source_id).name) for field in self.fields]

    def values(self, batch: pa.RecordBatch, schema: SchemaView) -> tuple[ArrowArray, ...]:
        """Partition values of every row, one array per field; raises SchemaMismatch."""
        arrays = []
        for field in self.fields:
            column = schema.column_by_id(field.source_id)
            array = read_column(batch, column)
            arrays.append(field.transform.apply(array, column=column.name))
        return tuple(arrays)

    def to_json(self) -> str:
        """Return Iceberg's JSON form."""
        fields = [
            {
                "source-id": field.source_id,
                "field-id": field.field_id,
                "name": field.name,
                "transform": str(field.transform),
            }
            for field in self.fields
        ]
        return json.dumps({"spec-id": self.spec_id, "fields": fields}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "PartitionSpec":
        """Read Iceberg's JSON form; raises Corruption."""
        document = parse_object(text, what="partition spec")
        spec_id = number_member(document, "spec-id", where="spec")
        listed = objects_member(document, "fields", where="spec")
        try:
            fields = tuple(
                _field_from_json(item, where=f"spec.fields[{at}]") for at, item in enumerate(listed)
            )
            return cls(spec_id, fields)
        except (InvalidArgument, LimitExceeded) as error:
            raise Corruption(f"partition spec JSON describes no spec: {error.message}") from error


def _parse_field(text: str) -> tuple[Transform, str]:
    """Split a field into its transform and the name of its column."""
    if not isinstance(text, str):
        raise InvalidArgument(
            f"a partition field is text, not {type(text).__name__}", hint='Write "day(ts)"'
        )
    call = _CALL.fullmatch(text)
    if call is None:
        return Identity(), text.strip()
    name, inside = call.group(1), call.group(2)
    if name in _WITH_PARAMETER:
        parameter = _PARAMETER.fullmatch(inside)
        if parameter is None:
            raise InvalidArgument(
                f"partition field {text[:64]!r} lacks its number or its column",
                hint=f"Write the number first: {name}(16, column)",
            )
        number = int(parameter.group(1))
        return (Bucket(number) if name == "bucket" else Truncate(number)), parameter.group(
            2
        ).strip()
    if name == "identity":
        return Identity(), inside.strip()
    if name in set(TimeUnit):
        return TimePart(TimeUnit(name)), inside.strip()
    close = difflib.get_close_matches(name[:64].lower(), _NAMES, n=1)
    raise InvalidArgument(
        f"unknown partition transform {name[:64]!r}",
        hint=f"Did you mean {close[0]}?" if close else f"neve knows {', '.join(_NAMES)}",
    )


def _bound_field(text: str, schema: SchemaView) -> tuple[str, ColumnView, Transform]:
    transform, column_name = _parse_field(text)
    column = schema.column(column_name)
    transform.check_source(column.type, column=column.name)
    return text, column, transform


def _text(field: PartitionField, column: str) -> str:
    match field.transform:
        case Identity():
            return column if _CALL.fullmatch(column) is None else f"identity({column})"
        case Bucket(parameter):
            return f"bucket({parameter}, {column})"
        case Truncate(parameter):
            return f"truncate({parameter}, {column})"
        case other:
            return f"{other}({column})"


def _default_name(transform: Transform, column: str) -> str:
    """Name a field as Iceberg does."""
    match transform:
        case TimePart(unit):
            return f"{column}_{unit}"
        case Bucket():
            return f"{column}_bucket"
        case Truncate():
            return f"{column}_trunc"
        case _:
            return column


def _free_name(name: str, taken: set[str]) -> str:
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain((name,), numbered) if each not in taken)


def _kind(transform: Transform) -> str:
    """Name what two fields on one column must not share."""
    return "time" if isinstance(transform, TimePart) else str(transform)


def _field_from_json(members: JsonObject, *, where: str) -> PartitionField:
    return PartitionField(
        source_id=number_member(members, "source-id", where=where),
        field_id=number_member(members, "field-id", where=where),
        name=text_member(members, "name", where=where),
        transform=parse_transform(text_member(members, "transform", where=where)),
    )


def _check_name(field: PartitionField) -> None:
    """Refuse a name that no column, with what a transform adds to its name, could have."""
    check_text(field.name, what=f"the name of partition field {field.field_id}")
    size = len(field.name.encode())
    if not 1 <= size <= _NAME_BYTES_MAX or "\0" in field.name:
        found = "holds a NUL" if "\0" in field.name else f"takes {size} bytes"
        raise InvalidArgument(
            f"S4: the name of partition field {field.field_id} {found}",
            hint=f"Use 1 to {_NAME_BYTES_MAX} bytes of UTF-8 without NUL",
        )
