"""Columns of CSV that Arrow converts have the values and errors of cells converted one by one."""

import csv
import io
import json
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.cli import imported_rows
from neve.cli.imported_rows import CsvRows
from neve.cli.row_output import csv_lines
from neve.errors import NeveError
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from tests.property.test_json_columns import NASTY
from tests.property.test_row_text import batch_of
from tests.property.typed_values import PRIMITIVES, Table, tables

Reading = tuple[list[list[bytes]], tuple[type[Exception], str, str | None] | None]

# Texts of JSON without their quotes, and others that some reader takes.
CELLS = [
    json.loads(text) if text.startswith('"') and "\\ud" not in text and "\\x" not in text else text
    for text in NASTY
    if "\t" not in text
]
CELLS += [
    "TRUE",
    "True",
    "t",
    "1",
    "yes",
    "0x1F",
    "1,5",
    " 1",
    "1 ",
    "+5",
    "1e3",
    "٣",
    "inf",
    "-inf",
]
CELLS += ["nan", "infinity", "12:30", "2024-01-31T22:31:08.123456+00:00", "1e-7", "00FF", "0xff"]


def read(content: str, schema: TableSchema) -> Reading:
    codec = RowCodec(schema)
    rows = CsvRows(schema, source="x", delimiter=",")
    found: list[list[bytes]] = []
    try:
        for batch in rows.batches(io.BytesIO(content.encode())):
            found.append(codec.encode_batch(batch))  # noqa: PERF401 - kept when one fails
    except NeveError as error:
        return found, (type(error), error.message, error.hint)
    return found, None


def read_one_by_one(content: str, schema: TableSchema) -> Reading:
    with patch.object(imported_rows, "_column", side_effect=ValueError):
        return read(content, schema)


@pytest.mark.parametrize("arrow_type", [each.type for each in PRIMITIVES], ids=str)
def test_every_odd_cell_is_read_the_same(arrow_type: pa.DataType) -> None:
    schema = TableSchema.from_arrow(
        pa.schema([("id", pa.int64()), ("v", arrow_type)]), primary_key=["id"]
    )
    for text in CELLS:
        file = io.StringIO()
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["id", "v"], ["1", text]])
        content = file.getvalue()

        assert read(content, schema) == read_one_by_one(content, schema), text


@given(tables(rows_max=9), st.data())
def test_any_file_is_read_the_same(table: Table, data: st.DataObject) -> None:
    batch = batch_of(table)
    lines = bytes(csv_lines(batch)).decode().splitlines(keepends=True)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(lines) - 1))
        place = data.draw(st.integers(0, len(lines[at])))
        lines[at] = lines[at][:place] + data.draw(st.text(max_size=2)) + lines[at][place:]
    content = ",".join(batch.schema.names) + "\n" + "".join(lines)
    try:
        content.encode()
    except UnicodeEncodeError:
        return

    assert read(content, table.schema) == read_one_by_one(content, table.schema)
