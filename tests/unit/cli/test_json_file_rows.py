"""JSON that `neve import` and `neve put` read: lines, an array, or what `neve scan` wrote."""

import io
from typing import cast

import pytest

from neve.cli.json_rows import JsonFileRows
from neve.errors import InvalidArgument, LimitExceeded
from neve.model.schema import TableSchema
from tests.unit.cli.rows_lake import ORDERS, RowsLake

SCHEMA = TableSchema.from_arrow(ORDERS, primary_key=["id"])
ROWS = [r'{"id": 1, "customer": "a],[{}\"\\"}', '{"id": 2, "customer": "ü, {"}', '{"id": 3}']
ARRAY = f"[{', '.join(ROWS)}]"


class Dribble(io.BytesIO):
    """A stream that gives only a few bytes at a time, as a pipe may."""

    def __init__(self, content: bytes, step: int) -> None:
        super().__init__(content)
        self._step = step

    def read(self, size: int | None = -1) -> bytes:
        del size
        return super().read(self._step)


def customers(stream: io.BytesIO) -> list[object]:
    reader = JsonFileRows(SCHEMA, source="x.json")
    batches = reader.batches(stream, batch_rows=2)
    return [value for batch in batches for value in batch.column("customer").to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        ARRAY,
        "[\r\n" + "\n,\n\n".join(ROWS).replace(": ", "\n:\n") + "\r\n]\r\n",
        "\ufeff \n\n" + ARRAY,
        '{\n  "table": "a \\" b",\n  "version": 7, "more": false,\n  "rows": ' + ARRAY + "\n}\n",
        "\n" + "\n".join(ROWS),
    ],
    ids=["array", "many lines", "marked", "document", "lines"],
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_the_same_rows_come_out_of_every_form(text: str, step: int) -> None:
    assert customers(Dribble(text.encode(), step)) == ['a],[{}"\\', "ü, {", None]


@pytest.mark.parametrize("text", ["", " \n", "[]", "[ \n ]\n", '{\n"rows": []}'])
def test_without_rows_there_is_nothing(text: str) -> None:
    assert customers(io.BytesIO(text.encode())) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"id": 1}, {"id": "x"}]', "x.json, row 2: column 'id': expected a whole number"),
        ('[{"id": 1},\n{"id" 2}]', "x.json, row 2: not JSON: Expecting ':' delimiter, at column 7"),
        ('[{"id": 1}, 5]', "x.json, row 2: not a JSON object: '5'"),
        ('[{"id": 1},]', "x.json, row 2: not JSON: Expecting value"),
        ('[{"id": 1}, {"id": 2}', "x.json, row 2: the array ends inside it"),
        ('[{"id": 1}, {"customer": "', "x.json, row 2: the array ends inside it"),
        ('[{"id": 1}]\n{"id": 2}\n', "x.json: there is text after the end of the array"),
        ('{\n "rows": [{"id": 1}]\n', "x.json: there is text after the end"),
        ('{\n "id": 1\n}\n', 'x.json: one JSON document, which has no array "rows"'),
        ('{"id": 1}\n[\n', "x.json:2: not JSON: Expecting value"),
    ],
)
def test_what_is_wrong_is_named_by_its_row_or_its_line(text: str, said: str) -> None:
    with pytest.raises(Exception, match=r"x\.json") as caught:
        customers(io.BytesIO(text.encode()))

    assert said in str(caught.value)


def test_a_row_without_an_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("neve.cli.json_rows.LINE_BYTES_MAX", 4 << 20)

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return b"x" * cast("int", size)

    with pytest.raises(LimitExceeded, match="row 1: longer than"):
        customers(Endless(b'[{"id": "'))


def test_a_line_begun_while_its_form_was_looked_for_is_read_to_its_end() -> None:
    long_text = "x" * (1 << 17)

    assert customers(io.BytesIO(f'{{"id": 1, "customer": "{long_text}"}}\n'.encode())) == [
        long_text
    ]


def test_an_array_can_be_put() -> None:
    lake = RowsLake().orders()

    lake.ok("put", "shop.orders", "-", stdin='[{"id": 1}, {"id": 2}]')

    assert [row["id"] for row in lake.rows()] == [1, 2]


def test_a_wrong_row_on_standard_input_says_that_nothing_was_written() -> None:
    lake = RowsLake().orders()

    for command in (["put", "shop.orders", "-"], ["import", "shop.orders", "-", "--format=jsonl"]):
        refused = lake.run(*command, stdin='{"id": 1}\n{"id": "x"}\n')

        assert refused.stderr.endswith("      Nothing was written\n")
        assert lake.rows() == []


def test_the_hint_for_what_is_no_json_names_the_forms() -> None:
    with pytest.raises(InvalidArgument) as caught:
        customers(io.BytesIO(b"id,customer\n"))

    assert caught.value.hint == "Write JSON lines, one object per line, or one array of objects"
