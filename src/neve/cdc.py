"""Change feeds of other systems, as rows for `Table.apply`.

    table.apply(neve.cdc.debezium(records), order_by="lsn", app_id="orders", batch=offset)

A Debezium record is an envelope, alone or as the payload beside its schema:

    {"before": {…} | null, "after": {…} | null, "op": "c" | "u" | "d" | "r",
     "source": {"lsn": …, "ts_ms": …, …}, "ts_ms": …}

The row is `after`, of a delete `before`. With a schema, values of Debezium's and Kafka Connect's
own types become what they mean: dates, times, timestamps, decimals, bytes.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa

from neve.engine.applied_changes import ChangeRows
from neve.engine.row_input import imported_table
from neve.errors import InvalidArgument

POSITION_COLUMNS: Final = (
    "ts_ms", "lsn", "change_lsn", "commit_lsn", "scn", "file", "pos", "row", "sequence", "txId",
)  # fmt: skip
"""What a source may say about where a change came from: columns for `order_by`."""
_ROWS_BY_OP: Final = {"c": "after", "r": "after", "u": "after", "d": "before"}
_EPOCH: Final = date(1970, 1, 1)
_START: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - Debezium's local timestamps have no zone
_MICROSECOND: Final = timedelta(microseconds=1)


def debezium(
    records: object, *, op: str = "op", position_columns: Iterable[str] = POSITION_COLUMNS
) -> ChangeRows:
    """Return the changes of Debezium records as rows with `op` and the columns of their source.

    Records are dicts, JSON as text or bytes, one or line by line, Arrow structs, or pairs of a key
    and a value as a Kafka consumer has them. Tombstones (a value of None) and heartbeats are
    skipped. Raises InvalidArgument for a record that is none.
    """
    rows = ChangeRows()
    wanted = tuple(position_columns)
    for number, (key, value) in enumerate(_pairs(records)):
        found = _change(key, value, number)
        if found is not None:
            operation, row, source = found
            positions = {name: source[name] for name in wanted if name in source}
            rows.append({**positions, **row, op: operation})
    rows.position_columns = frozenset((op, *wanted))
    return rows


def _change(
    key: object, value: object, number: int
) -> tuple[str, Mapping[str, object], Mapping[str, object]] | None:
    record = _document(value, number)
    if record is None:
        return None
    envelope, schema = _unwrapped(record)
    if envelope is None or (envelope.get("op") is None and "ts_ms" in envelope):
        return None  # a tombstone, or a heartbeat
    operation = envelope.get("op")
    if not isinstance(operation, str) or operation not in _ROWS_BY_OP:
        raise _no_change(number, f"its operation is {operation!r}")
    side = _ROWS_BY_OP[operation]
    row = envelope.get(side)
    types = _types(schema, side)
    if row is None and operation == "d":
        keys, schema = _unwrapped(_document(key, number) or {})
        row, types = keys, _types(schema, None)
    if not isinstance(row, Mapping) or not row:
        raise _no_change(number, f"a change {operation!r} has nothing in {side!r}")
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
    if isinstance(records, str | bytes):
        for line in records.splitlines():
            if line.strip():
                yield None, line
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


def _document(value: object, number: int) -> Mapping[str, Any] | None:
    if isinstance(value, str | bytes | bytearray):
        if not value.strip():
            return None
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError as error:
            raise _no_change(number, f"it is not JSON: {error}") from error
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _no_change(number, f"it is {type(value).__name__}")
    return value


def _unwrapped(
    record: Mapping[str, Any],
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return what a record holds and its schema, which may be missing."""
    if "payload" in record and record.keys() <= {"schema", "payload"}:
        return record["payload"], record.get("schema") or {}
    return record, {}


Convert = Callable[[Any], object]


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
        return lambda text: Decimal(int.from_bytes(_bytes(text), signed=True)).scaleb(-scale)
    if name == "VariableScaleDecimal":
        return lambda pair: Decimal(int.from_bytes(_bytes(pair["value"]), signed=True)).scaleb(
            -pair["scale"]
        )
    found = _CONVERTERS.get(name)
    return _bytes if found is None and field.get("type") == "bytes" else found


def _bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else base64.b64decode(str(text))


def _local(microseconds: int) -> datetime:
    return _START + microseconds * _MICROSECOND


def _time(microseconds: int) -> time:
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


def _no_change(number: int, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"record {number:,} is not a change of Debezium: {why}",
        hint="Pass envelopes with op, before, after and source; leave out other topics",
    )
