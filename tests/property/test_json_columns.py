"""Arrow reads lines of JSON with the rows, places and errors of reading them one by one."""

import io
import json
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.cli import json_rows
from neve.cli.json_rows import JsonColumns, JsonFileRows
from neve.cli.refused_rows import RefusedRows
from neve.cli.value_forms import json_values
from neve.errors import NeveError
from neve.model.row_codec import RowCodec
from neve.model.schema import Column, TableSchema
from tests.property.typed_values import PRIMITIVES, Table, tables

# Texts of JSON that some type takes, in a form that is rare or wrong for others.
NASTY = [
    "null",
    "true",
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1.0",
    "1e2",
    "1E-400",
    "1e400",
    "2.5",
    "01",
    "+1",
    "1.",
    ".5",
    "NaN",
    "-Infinity",
    "Infinity",
    "nan",
    "2147483648",
    "9223372036854775808",
    "-9223372036854775808",
    "9007199254740993",
    "3.4028235677973366e38",
    "16777217",
    "0.1000000014901161193847656249",
    "7.038531e-26",
    "1" * 400,
    "1" * 5000,
    "99999",
    "9999999.99",
    "12345678901234567890123456789012345678",
    "1.50000",
    "0.00",
    '"NaN"',
    '"Infinity"',
    '""',
    '" "',
    '"1"',
    '"1.50"',
    '"1.500"',
    '"1e2"',
    '"1E+2"',
    '" 1"',
    '"1_0"',
    '"+1.5"',
    '"\\u0661"',
    '"."',
    '"00ff"',
    '"00 ff"',
    '"0"',
    '"00FF00FF00FF00"',
    '"2024-01-31"',
    '"20240131"',
    '"2024-W05-3"',
    '"0000-01-01"',
    '"0001-01-01"',
    '"9999-12-31"',
    '"2024-02-30"',
    '"22:31"',
    '"22:31:08.5"',
    '"22:31:08.1234567"',
    '"24:00"',
    '"23:59:60"',
    '"22:31:08+00:00"',
    '"T22:31:08"',
    '"2024-01-31T22:31:08"',
    '"2024-01-31 22:31"',
    '"2024-01-31T22"',
    '"2024-01-31T22:31:08.123456789"',
    '"2024-01-31T22:31:08.1234567890"',
    '"2024-01-31T22:31:08Z"',
    '"2024-01-31T22:31:08+01"',
    '"2024-01-31T22:31:08+0130"',
    '"2024-01-31T22:31:08-23:59"',
    '"2024-01-31T22:31:08.5+00:00"',
    '"2024-01-31T22:31Z"',
    '"0001-01-01T00:00:00+01:00"',
    '"9999-12-31T23:59:59-01:00"',
    '"0000-12-31T23:59:59"',
    '"1600-01-01T00:00:00"',
    '"2300-01-01T00:00:00Z"',
    '"1677-09-21T00:12:43.145224192"',
    '"f79c3e09-677c-4bbd-a479-3f349cb785e7"',
    '"f79c3e09677c4bbda4793f349cb785e7"',
    '"{f79c3e09-677c-4bbd-a479-3f349cb785e7}"',
    '"\\ud800"',
    '"\\udc00"',
    '"\\ud83d\\ude00"',
    '"\\u0000"',
    '"\\x"',
    '"a\tb"',
    '"\x7f"',
    '"ü😀"',
    "[]",
    "[null]",
    "[1, 2]",
    "[1.5, NaN]",
    "[-0]",
    '["a", "b"]',
    "{}",
    '{"f0": 1}',
    '{"f0": null}',
    '{"f0": 1, "f0": 2}',
    '{"f0": 1, "other": 2}',
    '{"a": 1}',
    '[["a", 1]]',
    "19753",
    "-719529",
    "2932897",
]
# Lines that are no rows, or rows in a rare form.
LINES = [
    b"",
    b"   ",
    b"\t\r",
    b"\x0b",
    b"{",
    b"}",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'{"id": 1} {"id": 2}',
    b'{"id": 1}\r{"id": 2}',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1},',
    b'{"id": 1}x',
    b'x{"id": 1}',
    b'  {"id": 1}  ',
    b'{"id": 1}\x0c',
    b'\x0c{"id": 1}',
    b'{"id": 1}\xc2\xa0',
    b'\xef\xbb\xbf{"id": 1}',
    b'{"id": 1,}',
    b"{'id': 1}",
    b'{"id": 1, "id": 2}',
    b'{"id": 1, "\\u0069d": 2}',
    b'{"\\u0069d": 1}',
    b'{"ID": 1}',
    b'{"id": 1, "": 2}',
    b'{"id": 1, "other": 2}',
    b'{"id": 1, "c0": "\xff"}',
    b'{"id": 1, "\xff": 2}',
    b'{"id": 1\x00}',
    b'{"id": 1} // x',
    b'{"id": 1 /* x */}',
    b'{"id": {"id": 1}',
    b'{"id": "a',
    b'b"}',
    b'{"id": [' + b"[" * 2000 + b"]" * 2000 + b"]}",
    b'{"id":1}',
]


@dataclass
class Reading:
    """What came of a file."""

    rows: list[list[bytes]] = field(default_factory=list)
    places: list[list[tuple[str, int, bytes]]] = field(default_factory=list)
    failure: tuple[type[Exception], str, str | None] | None = None
    refused: list[str] = field(default_factory=list)
    refused_texts: list[bytes] = field(default_factory=list)


class _Kept(RefusedRows):
    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self._reading = reading

    def add(self, error: NeveError, *, place: int, text: bytes, names_place: bool = False) -> None:
        self._reading.refused_texts.append(text)
        super().add(error, place=place, text=text, names_place=names_place)


def read(
    content: bytes,
    schema: TableSchema,
    *,
    keep_good: bool,
    batch_rows: int,
    columns: list[str] | None = None,
) -> Reading:
    reading = Reading()
    refused = _Kept(reading) if keep_good else None
    before = 0
    try:
        rows = JsonFileRows(schema, source="x", columns=columns, refused=refused)
        codec = json_rows.codec_of(schema, columns)
        for batch in rows.batches(io.BytesIO(content), batch_rows=batch_rows):
            batch.validate(full=True)
            assert batch.schema.equals(codec.schema.arrow_schema, check_metadata=True)
            reading.rows.append(codec.encode_batch(batch))
            places = range(before, before + batch.num_rows)
            reading.places.append(
                [(rows.place_of(at), rows.stands_at(at), rows.text_of(at)) for at in places]
            )
            before += batch.num_rows
    except NeveError as error:
        reading.failure = (type(error), error.message, error.hint)
    if refused is not None:
        reading.refused = refused.details(lambda numbers: [str(each) for each in numbers])
    return reading


def read_one_by_one(content: bytes, schema: TableSchema, **options: Any) -> Reading:  # noqa: ANN401 - those of `read`
    with patch.object(JsonColumns, "read", return_value=None):
        return read(content, schema, **options)


def lines_of(table: Table) -> list[bytes]:
    codec = RowCodec(table.schema)
    batch = codec.decode_many([codec.encode(row) for row in table.rows])
    columns = [json_values(column) for column in batch.columns]
    return [
        json.dumps(
            dict(zip(batch.schema.names, row, strict=True)), ensure_ascii=bool(at % 2)
        ).encode()
        for at, row in enumerate(zip(*columns, strict=True))
    ]


@given(tables(rows_max=40), st.integers(1, 50))
def test_what_is_written_is_read_the_same(table: Table, batch_rows: int) -> None:
    content = b"\n".join(lines_of(table))

    found = read(content, table.schema, keep_good=False, batch_rows=batch_rows)

    assert found == read_one_by_one(content, table.schema, keep_good=False, batch_rows=batch_rows)
    assert found.failure is None


@given(tables(rows_max=40), st.integers(1, 50), st.booleans(), st.data())
def test_odd_lines_are_read_the_same(
    table: Table, batch_rows: int, keep_good: bool, data: st.DataObject
) -> None:
    lines = lines_of(table)
    names = [each.name for each in table.schema.columns]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["value", "line", "missing", "break", "bytes"])):
            case "value":
                name = data.draw(st.sampled_from(names))
                text = data.draw(st.sampled_from(NASTY))
                others = "".join(
                    f", {json.dumps(other)}: {json.dumps(value)}"
                    for other, value in json.loads(lines_of(table)[at % len(table.rows)]).items()
                    if other != name
                )
                lines[at] = f'{{"{name}": {text}{others}}}'.encode()
            case "line":
                lines.insert(at, data.draw(st.sampled_from(LINES)))
            case "missing":
                members = json.loads(lines_of(table)[at % len(table.rows)])
                del members[data.draw(st.sampled_from(names))]
                lines[at] = json.dumps(members).encode()
            case "break":
                place = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:place] + b"\n" + lines[at][place:]
            case _:
                place = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:place] + data.draw(st.binary(max_size=2)) + lines[at][place:]
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    content = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\n"])) + end.join(lines)
    options: dict[str, Any] = {"keep_good": keep_good, "batch_rows": batch_rows}

    found = read(content, table.schema, **options)

    assert found == read_one_by_one(content, table.schema, **options)


@pytest.mark.parametrize("arrow_type", [each.type for each in PRIMITIVES], ids=str)
def test_every_odd_value_is_read_the_same(arrow_type: pa.DataType) -> None:
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("v", arrow_type)]
    schema = TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])

    for number, text in enumerate(NASTY):
        content = f'{{"id": {number}, "v": {text}}}\n{{"id": {number}, "v": null}}\n'.encode()
        found = read(content, schema, keep_good=True, batch_rows=10)
        assert found == read_one_by_one(content, schema, keep_good=True, batch_rows=10), text


@pytest.mark.parametrize("line", LINES)
def test_every_odd_line_is_read_the_same(line: bytes) -> None:
    fields: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("c0", pa.string())]
    schema = TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])
    good = [b'{"id": %d, "c0": "x"}' % number for number in range(40)]

    for at in (0, 1, 20, 40):
        content = b"\n".join([*good[:at], line, *good[at:]])
        for keep_good in (False, True):
            options: dict[str, Any] = {"keep_good": keep_good, "batch_rows": 7}
            found = read(content, schema, **options)
            assert found == read_one_by_one(content, schema, **options)


def test_defaults_and_named_columns_are_read_the_same() -> None:
    schema = TableSchema(
        columns=(
            Column(field_id=1, name="id", type=pa.int64(), nullable=False),
            Column(
                field_id=2,
                name="c",
                type=pa.string(),
                nullable=True,
                initial_default="a",
                write_default="b",
            ),
            Column(field_id=3, name="d", type=pa.int32(), nullable=True),
        ),
        primary_key=(1,),
        schema_id=0,
        last_field_id=3,
    )
    texts = ['{"id": 1}', '{"id": 2, "c": null}', '{"id": 3, "c": "x"}', '{"c": "x", "d": 1}']
    texts += ['{"id": 4, "d": 1}', '{"id": 5, "d": null}', '{"id": 6, "c": 1, "d": 1}']
    content = "\n".join(texts * 20).encode()

    for columns in (None, ["c"], ["d"]):
        found = read(content, schema, keep_good=True, batch_rows=9, columns=columns)
        again = read_one_by_one(content, schema, keep_good=True, batch_rows=9, columns=columns)
        assert found == again


def test_a_batch_ends_where_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = TableSchema.from_arrow(
        pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key=["id"]
    )
    monkeypatch.setattr(json_rows, "BATCH_BYTES", 100)
    monkeypatch.setattr(json_rows, "LINE_BYTES_MAX", 60)
    lines = [b'{"id": %d}' % number for number in range(50)]
    lines[17] = b'{"id": x' + b"x" * 40 + b"}"
    lines[40] = b'{"id": 1' + b" " * 60 + b"}"

    for keep_good in (False, True):
        content = b"\n".join(lines)
        found = read(content, schema, keep_good=keep_good, batch_rows=30)
        assert found == read_one_by_one(content, schema, keep_good=keep_good, batch_rows=30)
        assert found.failure is not None
        assert len(found.rows[0]) == 10
