"""Columns of a table to be, as a file of rows has them.

    parquet, arrow   the file's own schema
    csv              the first line names columns; their cells in the first MiB say the types
    json             members of the first 1,000 rows, in the order in which they appear

Text is a date, timestamp or uuid where every value is written like one. A number that begins with
zeros, or has more digits than its type holds, is text: nothing is lost. What only NULL is known
of is text, too.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from itertools import islice
from typing import BinaryIO, Final, cast

import pyarrow as pa

from neve.cli.imported_rows import DecodedFile, ImportForm, opened_text, source_of
from neve.cli.json_rows import JsonFileRows
from neve.cli.value_forms import parse_json
from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.model.arrow_types import ArrowField
from neve.model.display import shown
from neve.model.schema import TableSchema

_SAMPLE_BYTES: Final = 1 << 20
_SAMPLE_ROWS: Final = 1_000
_COLUMNS_MAX: Final = 10_000
_DAY: Final = r"\d{4}-\d\d-\d\d"
_MOMENT: Final = _DAY + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
# The first form that fits all values wins.
_SPELLED: Final[tuple[tuple[str, pa.DataType], ...]] = (
    (_DAY, pa.date32()),
    (_MOMENT, pa.timestamp("us")),
    (_MOMENT + r"(Z|[+-]\d\d:?\d\d)", pa.timestamp("us", tz="UTC")),
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", pa.uuid()),
)
_CELLS: Final[tuple[tuple[str, pa.DataType], ...]] = (
    (r"(?i:true|false)", pa.bool_()),
    (r"[+-]?(0|[1-9]\d{0,17})", pa.int64()),
    (r"[+-]?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", pa.float64()),
    *_SPELLED,
)
# Rows are only cut out of a file, and fit any table for that.
_ANY_TABLE: Final = TableSchema.from_arrow(
    pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key=["id"]
)


def infer_schema(
    path: str, form: ImportForm, *, delimiter: str, memory_limit: int | None
) -> pa.Schema:
    """Return the columns of a file; raises typed errors."""
    with ExitStack() as stack:
        raw, text = opened_text(path, form, stack)
        source = source_of(path)
        match form:
            case ImportForm.CSV:
                fields = _csv_fields(text, source, delimiter)
            case ImportForm.JSONL:
                fields = _json_fields(text, source)
            case ImportForm.PARQUET | ImportForm.ARROW:
                decoded = DecodedFile(
                    raw, form, source=source, memory_limit=memory_limit, stack=stack
                )
                fields = [
                    # What others note beside their columns is theirs.
                    pa.field(each.name, _without_null(each.type), nullable=each.nullable)
                    for each in decoded.schema()
                ]
    if not fields:
        raise InvalidArgument(f"{source} has no columns", hint="Name columns: id:long")
    return pa.schema(fields)


def _csv_fields(stream: BinaryIO, source: str, delimiter: str) -> list[ArrowField]:
    sample = stream.read(_SAMPLE_BYTES)
    if len(sample) == _SAMPLE_BYTES:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    try:
        text = sample.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(
            f"{source} cannot be read as CSV: {error}",
            hint="Check the delimiter, and that the file is UTF-8 and has a head",
        ) from None
    if not rows:
        raise InvalidArgument(f"{source} is empty", hint="Its first line names columns")
    if len(rows[0]) > _COLUMNS_MAX:
        raise LimitExceeded(
            f"the first line of {source} names {len(rows[0]):,} columns",
            limit=_COLUMNS_MAX,
            actual=len(rows[0]),
            hint="Check the delimiter, and that the file has a head",
        )
    names, cells = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = zip(*cells, strict=True) if cells else ([] for _ in names)
    return [
        pa.field(name, _text_type([cell for cell in column if cell], _CELLS))
        for name, column in zip(names, columns, strict=True)
    ]


def _json_fields(stream: BinaryIO, source: str) -> list[ArrowField]:
    columns: dict[str, list[object]] = {}
    texts = JsonFileRows(_ANY_TABLE, source=source).texts(stream)
    for number, text in islice(texts, _SAMPLE_ROWS):
        try:
            members = parse_json(text.decode())
        except ValueError as error:
            raise InvalidArgument(f"{source}, row {number:,}: not JSON: {error}") from None
        if not isinstance(members, Mapping):
            raise InvalidArgument(f"{source}, row {number:,}: not a JSON object")
        for name, value in members.items():
            columns.setdefault(name, []).append(value)
    return [pa.field(name, _json_type(name, values)) for name, values in columns.items()]


def _json_type(name: str, values: Sequence[object]) -> pa.DataType:
    known = [_plain(value) for value in values if value is not None]
    texts = [value for value in known if isinstance(value, str)]
    if len(texts) == len(known):
        return _text_type(texts, _SPELLED)
    try:
        return _without_null(pa.array(cast("list[bool]", known)).type)
    except (pa.ArrowException, OverflowError):
        raise SchemaMismatch(
            f"the values of column {shown(name)} have no type in common",
            column=name,
            hint=f"Write its type: {name}:string",
        ) from None


def _plain(value: object) -> object:
    """Return numbers with fractions as those that columns have by default."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


def _without_null(arrow_type: pa.DataType) -> pa.DataType:
    """Take text for what only NULL is known of, also inside."""
    if pa.types.is_null(arrow_type):
        return pa.string()
    if pa.types.is_list(arrow_type):
        return pa.list_(_without_null(arrow_type.value_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([(each.name, _without_null(each.type)) for each in arrow_type.fields])
    return arrow_type


def _text_type(texts: Iterable[str], forms: Sequence[tuple[str, pa.DataType]]) -> pa.DataType:
    known = [*texts]
    for pattern, arrow_type in forms if known else ():
        if all(re.fullmatch(pattern, text, re.ASCII) for text in known):
            return arrow_type
    return pa.string()
