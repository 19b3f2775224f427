"""Change feeds of other systems, as rows for `Table.apply`.

    table.apply(neve.cdc.debezium(records), order_by="lsn", app_id="orders", batch=offset)

A Debezium record is an envelope, alone or as the payload beside its schema:

    {"before": {…} | null, "after": {…} | null, "op": "c" | "u" | "d" | "r",
     "source": {"lsn": …, "ts_ms": …, …}, "ts_ms": …}

The row is `after`, of a delete `before`. With a schema, values of Debezium's and Kafka Connect's
own types become what they mean: dates, times, timestamps, decimals, bytes. Without one, the table's
columns decide what JSON means: decimals, dates, timestamps and UUIDs as text, dates as days since
1970, bytes as base64. A timestamp as a number may count several units, so it needs the schema.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa

from neve.engine.applied_changes import ChangeRow, Convert
from neve.engine.row_input import imported_table
from neve.errors import InvalidArgument
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.display import EPOCH
from neve.model.schema import TableSchema

POSITION_COLUMNS: Final = (
    "ts_ms", "lsn", "change_lsn", "commit_lsn", "scn", "file", "pos", "row", "sequence", "txId",
)  # fmt: skip
"""What a source may say about where a change came from: columns for `order_by`."""
_ROWS_BY_OP: Final = {"c": "after", "r": "after", "u": "after", "d": "before"}
_EPOCH: Final = EPOCH.date()
_START: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - Debezium's local timestamps have no zone
# What other systems send may be anything.
_ODD_RECORDS: Final = (
    AttributeError, TypeError, KeyError, ValueError, ArithmeticError, RecursionError,
)  # fmt: skip
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_MICROSECONDS: Final = 24 * 60 * 60 * 1_000_000


class DebeziumRow(ChangeRow):
    """A change of Debezium."""

    def converters(self, schema: TableSchema) -> Mapping[str, Convert]:
        """Return how values of JSON become values of a table; others are left as they are."""
        found = {column.name: _JSON_FORMS.get(kind_of(column.type)) for column in schema.columns}
        return {name: _attempt(*form) for name, form in found.items() if form is not None}


def debezium(
    records: object, *, op: str = "op", position_columns: Iterable[str] = POSITION_COLUMNS
) -> list[DebeziumRow]:
    """Return the changes of Debezium records as rows with `op` and the columns of their source.

    Records are dicts, JSON as text or bytes, one or line by line, Arrow structs, or pairs of a key
    and a value as a Kafka consumer has them. Tombstones (a value of None) and heartbeats are
    skipped. Raises InvalidArgument for a record that is not a change.

    `apply` stores the row's own columns, and a position only where `order_by` names it and the
    table has it. Positions that are text of digits become numbers.
    """
    if isinstance(position_columns, str) or not isinstance(position_columns, Iterable):
        raise InvalidArgument("position_columns is not a list of names", hint="Pass a list")
    wanted = tuple(position_columns)
    rows: list[DebeziumRow] = []
    for number, (key, value) in enumerate(_pairs(records)):
        found = change_row(key, value, place=f"record {number:,}", op=op, position_columns=wanted)
        if found is not None:
            rows.append(found)
    return rows


def change_row(
    key: object, value: object, *, place: str, op: str, position_columns: Iterable[str]
) -> DebeziumRow | None:
    """Return the change of one record; None for a tombstone or a heartbeat.

    `place` names the record in the message of InvalidArgument.
    """
    try:
        found = _change(key, value, place)
    except InvalidArgument:
        raise
    except _ODD_RECORDS as error:
        raise _no_change(place, f"{type(error).__name__}: {error}") from error
    if found is None:
        return None
    operation, row, source = found
    positions = {name: _position(source[name]) for name in position_columns if name in source}
    return DebeziumRow(row, (op, operation), positions)


def _position(value: object) -> object:
    """Return a position as a number where it is one: Oracle's are text."""
    is_number = isinstance(value, str) and value.isascii() and value.isdigit()
    return int(cast("str", value)) if is_number else value


def _change(
    key: object, value: object, place: str
) -> tuple[str, Mapping[str, object], Mapping[str, object]] | None:
    record = _document(value, place)
    if record is None:
        return None
    envelope, schema = _unwrapped(record)
    if envelope is None or envelope.keys() == {"ts_ms"}:
        return None  # a tombstone, or a heartbeat
    operation = envelope.get("op")
    if not isinstance(operation, str) or operation not in _ROWS_BY_OP:
        raise _no_change(place, f"its operation is {operation!r}")
    side = _ROWS_BY_OP[operation]
    row = envelope.get(side)
    types = _types(schema, side)
    if row is None and operation == "d":
        keys, schema = _unwrapped(_document(key, place) or {})
        row, types = keys, _types(schema, None)
    if not isinstance(row, Mapping) or not row:
        raise _no_change(place, f"a change {operation!r} has nothing in {side!r}")
    source = envelope.get("source")
    positions = dict(source) if isinstance(source, Mapping) else {}
    if positions.get("ts_ms") is None and envelope.get("ts_ms") is not None:
        positions["ts_ms"] = envelope["ts_ms"]
    converted = {
        name: types[name](cell) if cell is not None and name in types else cell
        for name, cell in row.items()
    }
    return operation, converted, positions


def _pairs(records: object) -> Iterator[tuple[object, object]]:
    """Yield keys and values of records, whatever they come in."""
    if isinstance(records, bytearray):
        records = bytes(records)
    if isinstance(records, str | bytes):
        yield from ((None, text) for text in _texts(records))
    elif isinstance(records, Mapping):
        yield None, records
    elif isinstance(records, pa.Array | pa.ChunkedArray):
        for value in records.to_pylist():
            yield None, value
    elif hasattr(records, "__arrow_c_stream__") or isinstance(records, pa.RecordBatch | pa.Table):
        for value in imported_table(records).to_pylist():
            yield None, value
    elif isinstance(records, Iterable):
        for record in records:
            is_pair = isinstance(record, tuple) and len(record) == 2  # noqa: PLR2004
            yield record if is_pair else (None, record)
    else:
        raise InvalidArgument(
            f"records are given as {type(records).__name__}",
            hint="Pass dicts, JSON text, an Arrow table, or pairs of key and value",
        )


def _texts(records: str | bytes) -> Iterator[str | bytes]:
    """Yield one record, which may take several lines, or the records of several lines."""
    try:
        json.loads(records)
    except (ValueError, RecursionError):
        # Not splitlines: text in JSON may hold other line breaks.
        lines = records.split("\n") if isinstance(records, str) else records.split(b"\n")
        yield from (line for line in lines if line.strip())
    else:
        yield records


def _document(value: object, place: str) -> Mapping[str, Any] | None:
    if isinstance(value, str | bytes | bytearray):
        if not value.strip():
            return None
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError as error:
            raise _no_change(place, f"it is not JSON: {error}") from error
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _no_change(place, f"it is {type(value).__name__}")
    return value


def _unwrapped(
    record: Mapping[str, Any],
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return what a record holds and its schema, which may be missing."""
    if "payload" in record and record.keys() <= {"schema", "payload"}:
        return record["payload"], record.get("schema") or {}
    return record, {}


def _types(schema: Mapping[str, Any], side: str | None) -> dict[str, Convert]:
    """Return how values of a row's columns are read, for those that are not what they mean."""
    fields = cast("list[Mapping[str, Any]]", schema.get("fields") or [])
    if side is not None:
        row = next((each for each in fields if each.get("field") == side), None)
        fields = (row or {}).get("fields") or []
    return {
        str(each.get("field")): convert
        for each in fields
        if (convert := _converter(each)) is not None
    }


def _converter(field: Mapping[str, Any]) -> Convert | None:
    name = str(field.get("name") or "").rpartition(".")[2]
    if name == "Decimal":
        scale = int((field.get("parameters") or {}).get("scale", 0))
        return lambda text: _decimal(text, scale)
    if name == "VariableScaleDecimal":
        return lambda pair: Decimal(int.from_bytes(_bytes(pair["value"]), signed=True)).scaleb(
            -pair["scale"]
        )
    found = _CONVERTERS.get(name)
    return _bytes if found is None and field.get("type") == "bytes" else found


def _decimal(text: object, scale: int) -> Decimal:
    """Return an unscaled number with its digits after the point; exact, however many there are."""
    number = int.from_bytes(_bytes(text), signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _attempt(kinds: tuple[type, ...], convert: Convert) -> Convert:
    def attempt(value: object) -> object:
        if type(value) not in kinds:
            return value
        try:
            return convert(value)
        except (ValueError, InvalidOperation, OverflowError):
            return value  # the table says what it expects

    return attempt


def _bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else base64.b64decode(str(text), validate=True)


def _local(microseconds: int) -> datetime:
    return _START + microseconds * _MICROSECOND


def _time(microseconds: int) -> time:
    if not 0 <= microseconds < _DAY_MICROSECONDS:
        raise ValueError(f"{microseconds} microseconds are not a time of day")
    return _local(microseconds).time()


_CONVERTERS: Final[Mapping[str, Convert]] = {
    "Date": lambda days: _EPOCH + timedelta(days=days),
    "Timestamp": lambda number: _local(number * 1_000),
    "MicroTimestamp": _local,
    "NanoTimestamp": lambda number: _local(number // 1_000),
    "ZonedTimestamp": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "Time": lambda number: _time(number * 1_000),
    "MicroTime": _time,
    "NanoTime": lambda number: _time(number // 1_000),
}
_JSON_FORMS: Final[Mapping[TypeKind, tuple[tuple[type, ...], Convert]]] = {
    TypeKind.FLOAT: ((Decimal,), float),
    TypeKind.DOUBLE: ((Decimal,), float),
    TypeKind.DECIMAL: ((str, int), Decimal),
    TypeKind.DATE: (
        (str, int),
        lambda day: (
            date.fromisoformat(day) if isinstance(day, str) else _EPOCH + timedelta(days=day)
        ),
    ),
    TypeKind.TIME: ((str,), time.fromisoformat),
    TypeKind.TIMESTAMP: ((str,), datetime.fromisoformat),
    TypeKind.TIMESTAMPTZ: ((str,), datetime.fromisoformat),
    TypeKind.UUID: ((str,), UUID),
    TypeKind.BINARY: ((str,), _bytes),
    TypeKind.FIXED: ((str,), _bytes),
}


def _no_change(place: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{place} is not a change of Debezium: {why}",
        hint="Pass envelopes with op, before, after and source; leave out other topics",
    )
