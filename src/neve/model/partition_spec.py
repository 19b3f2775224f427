"""Partition specs, and the partitions of files and rows under them.

A spec as users write it, and as Iceberg stores it:

    written                source-id  field-id  name        transform
    "day(ts)"                      1      1000  ts_day      day
    "bucket(16, id)"               2      1001  id_bucket   bucket[16]
    "truncate(4, title)"           3      1002  title_trunc truncate[4]
    "x" or "identity(x)"           4      1003  x           identity

MODEL-6  Field ids begin at 1000 and mean one source column and transform forever, in all specs of a
         table: a field that is added again gets its old id and name.
MODEL-7  Names, field ids and pairs of column and transform occur once in a spec. One column has at
         most one of year, month, day and hour: the finer one implies the coarser.
MODEL-8  A field never has the name of another column, so that a listing can show both.
MODEL-9  A name is UTF-8 without NUL, no longer than a column's with the suffix of its transform.

The partition of a file does not depend on the bytes its values were stored as:

    x = 7, stored while x was an int        07 00 00 00
    x = 7, stored after it became a long    07 00 00 00 00 00 00 00     the same partition

Values are compared in the form in which the newest type of their column stores them. All NaNs are
one value; -0.0 and 0.0 are two.

Rows are grouped by partition, each partition with its values as the manifest stores them:

    rows ──► day=2024-03-31, bucket=7   rows 0, 3, 9
             day=2024-04-01, bucket=2   rows 1, 2
"""

import itertools
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.arrow_buffers import Positions
from neve.model.data_file import DataFile, PartitionValue
from neve.model.display import shown
from neve.model.field_ids import NAME_BYTES_MAX, check_text
from neve.model.plain_values import (
    PlainValue,
    decode_single_value,
    encode_single_value,
    is_nan,
    plain_of,
)
from neve.model.schema import TableSchema
from neve.model.schema_json import (
    JsonObject,
    number_member,
    objects_member,
    parse_object,
    text_member,
)
from neve.model.schema_view import ArrowArray, ColumnView, SchemaView, read_column
from neve.model.suggestions import similar_name_hint
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
# A column's name and the longest suffix that a transform adds.
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
    """Fields that together name a partition; none for an unpartitioned table."""

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
                    hint=f"Number partition fields from {FIRST_FIELD_ID}: lower ids are columns",
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
                "partition fields are one text, not a list", hint=f"Pass [{texts[:64]!r}]"
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
                # Of another column, which had this one's name before.
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
            raise Corruption(f"partition spec JSON is not a valid spec: {error.message}") from error


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
    raise InvalidArgument(
        f"unknown partition transform {name[:64]!r}",
        hint=similar_name_hint(name.lower(), _NAMES, is_quoted=False)
        or f"Use one of {', '.join(_NAMES)}",
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
    """Return what two fields on one column must not share."""
    return "time" if isinstance(transform, TimePart) else str(transform)


def _field_from_json(members: JsonObject, *, where: str) -> PartitionField:
    return PartitionField(
        source_id=number_member(members, "source-id", where=where),
        field_id=number_member(members, "field-id", where=where),
        name=text_member(members, "name", where=where),
        transform=parse_transform(text_member(members, "transform", where=where)),
    )


def _check_name(field: PartitionField) -> None:
    """Refuse a name that is not a possible column name plus the suffix of a transform."""
    check_text(field.name, what=f"the name of partition field {field.field_id}")
    size = len(field.name.encode())
    if not 1 <= size <= _NAME_BYTES_MAX or "\0" in field.name:
        found = "holds a NUL" if "\0" in field.name else f"takes {size} bytes"
        raise InvalidArgument(
            f"MODEL-9: the name of partition field {field.field_id} {found}",
            hint=f"Use 1 to {_NAME_BYTES_MAX} bytes of UTF-8 without NUL",
        )


PartitionId: TypeAlias = tuple[int, tuple[PartitionValue, ...]]
"""Spec id and partition tuple; partitions of different specs are different."""


class PartitionIdentity:
    """Distinguishes the partitions of one table's files; for one thread."""

    def __init__(
        self, spec_of: Callable[[int], PartitionSpec], column_type: Callable[[int], pa.DataType]
    ) -> None:
        """Take specs by id, and types by field id, including those of dropped columns."""
        self._spec_of = spec_of
        self._column_type = column_type
        # Many files share a partition, which has few stored forms.
        self._known: dict[PartitionId, PartitionId] = {}

    @classmethod
    def of_definitions(
        cls, specs: Iterable[PartitionSpec], schemas: Iterable[TableSchema]
    ) -> "PartitionIdentity":
        """Take all definitions of a table; schemas the newest last."""
        by_id = {spec.spec_id: spec for spec in specs}
        types = {column.field_id: column.type for schema in schemas for column in schema.columns}
        return cls(by_id.__getitem__, types.__getitem__)

    def of(self, file: DataFile) -> PartitionId:
        """Return the partition of a file."""
        return self.of_values(file.spec_id, file.partition)

    def of_values(self, spec_id: int, partition: tuple[PartitionValue, ...]) -> PartitionId:
        """Return the partition of stored values, in the form of the newest types."""
        if not partition:
            return spec_id, partition
        stored = spec_id, partition
        known = self._known.get(stored)
        if known is None:
            known = self._known[stored] = spec_id, self._newest(spec_id, partition)
        return known

    def _newest(
        self, spec_id: int, partition: tuple[PartitionValue, ...]
    ) -> tuple[PartitionValue, ...]:
        try:
            fields = {field.field_id: field for field in self._spec_of(spec_id).fields}
            return tuple(self._value(fields[each.field_id], each) for each in partition)
        except (Corruption, KeyError):
            return partition  # only its bytes are known

    def _value(self, field: PartitionField, value: PartitionValue) -> PartitionValue:
        if value.value is None:
            return value
        type_ = field.transform.result_type(self._column_type(field.source_id))
        return PartitionValue(field_id=value.field_id, value=newest_form(type_, value.value))


def newest_form(type_: pa.DataType, stored: bytes) -> bytes:
    """Return a stored value in the form of the type its column now has; raises Corruption."""
    plain = decode_single_value(type_, stored)
    try:
        return encode_single_value(type_, math.nan if is_nan(plain) else plain)
    except struct.error as error:
        raise Corruption(f"a stored value is beyond {type_}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionGroup:
    """The rows of one partition, ascending."""

    values: tuple[PartitionValue, ...]
    plain: tuple[PlainValue | None, ...]
    positions: Positions


def partition_groups(spec: PartitionSpec, arrays: Sequence[ArrowArray]) -> Iterator[PartitionGroup]:
    """Yield every partition that has rows, in the order in which they first occur.

    The arrays are the values of the fields of the spec, at least one, as `PartitionSpec.values`
    returns them.
    """
    codes = _codes(arrays)
    # Stable: rows of one partition stay in their order.
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    for positions in sorted((each for each in groups if len(each)), key=lambda each: int(each[0])):
        first = int(positions[0])
        plain = tuple(plain_of(array[first]) for array in arrays)
        yield PartitionGroup(
            values=tuple(
                PartitionValue(
                    field_id=field.field_id,
                    value=None if value is None else encode_single_value(array.type, value),
                )
                for field, array, value in zip(spec.fields, arrays, plain, strict=True)
            ),
            plain=plain,
            positions=positions,
        )


def _codes(arrays: Sequence[ArrowArray]) -> Positions:
    """Return a number for each combination of values: equal numbers, equal partition."""
    codes: Positions | None = None
    for array in arrays:
        # Arrow cannot compare values of extension types, such as uuids, but it can their storage.
        plain = array.storage if isinstance(array, pa.ExtensionArray) else array
        encoded = plain.dictionary_encode(null_encoding="encode")
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = numbers
        else:
            # Renumbered after each field, so that no product of counts overflows.
            codes = np.unique(codes * len(encoded.dictionary) + numbers, return_inverse=True)[1]
    assert codes is not None
    return codes
