"""Columns of a scan with dots: fields inside of structs, wherever rows are."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import neve
from neve.errors import InvalidArgument, NotFound
from tests.unit.read.nested_tables import PLACES, nested_table

_ROWS: list[dict[str, object]] = [
    {"id": 1, "s": {"a": 5, "name": "five", "in": {"x": 0.5, "zip.code": 9}}, "s.flat": 5},
    {"id": 2, "s": {"a": 7, "name": None, "in": None}},
    {"id": 3, "s": None, "s.flat": 7},
]


@pytest.fixture(params=PLACES)
def table(request: pytest.FixtureRequest) -> Iterator[neve.Table]:
    with nested_table(request.param, _ROWS) as made:
        yield made


def rows(table: neve.Table, *columns: str) -> list[dict[str, object]]:
    scan = table.scan(columns=list(columns), key_range=(None, None))
    read = scan.to_arrow()
    assert read.schema.equals(scan.schema)
    assert scan.count() == read.num_rows
    return read.to_pylist()


def test_a_field_of_a_struct_comes_in_a_struct_of_it_alone(table: neve.Table) -> None:
    assert rows(table, "s.a") == [{"s": {"a": 5}}, {"s": {"a": 7}}, {"s": None}]


def test_fields_of_one_struct_share_it_in_the_order_of_the_schema(table: neve.Table) -> None:
    assert rows(table, "s.in.x", "id", "s.a") == [
        {"s": {"a": 5, "in": {"x": 0.5}}, "id": 1},
        {"s": {"a": 7, "in": None}, "id": 2},
        {"s": None, "id": 3},
    ]


def test_names_with_dots_of_their_own_are_found(table: neve.Table) -> None:
    assert rows(table, "s.flat", "s.in.zip.code") == [
        {"s.flat": 5, "s": {"in": {"zip.code": 9}}},
        {"s.flat": None, "s": {"in": None}},
        {"s.flat": 7, "s": None},
    ]


def test_a_filter_asks_for_fields_that_are_not_given(table: neve.Table) -> None:
    read = table.scan("s.name = 'five'", columns=["s.a"]).to_arrow()

    assert read.to_pylist() == [{"s": {"a": 5}}]


def test_batches_and_explanations_know_the_fields(table: neve.Table) -> None:
    scan = table.scan(columns=["s.a"])

    assert pa.RecordBatchReader.from_stream(scan).read_all().num_rows == 3
    assert scan.explain().columns == ("s.a",)
    assert "'s.a'" in repr(scan)


def test_an_old_version_gives_the_fields_it_had(table: neve.Table) -> None:
    table.flush()
    before = table.version
    with table.evolve() as change:
        change.add_column("s.new", "long")
        change.drop_column("s.a")

    assert rows(table, "s.new", "s.name")[0] == {"s": {"name": "five", "new": None}}
    with table.at(before) as old:
        read = old.scan(columns=["s.a"], key_range=(None, 2)).to_arrow()
        assert read.to_pylist() == [{"s": {"a": 5}}]


@pytest.mark.parametrize(
    "columns", [["s", "s.a"], ["s.a", "s"], ["s.a", "s.a"], ["s.in", "s.in.x"]], ids=str
)
def test_what_is_asked_for_twice_is_refused(table: neve.Table, columns: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        table.scan(columns=columns)


@pytest.mark.parametrize(
    ("column", "hint"), [("s.b", "'a'"), ("s.a.b", "structs"), ("tags.a", "structs"), ("t", "tags")]
)
def test_a_field_that_is_not_there_is_told_from_those_that_are(
    table: neve.Table, column: str, hint: str
) -> None:
    with pytest.raises(NotFound) as refusal:
        table.scan(columns=[column])

    assert hint in (refusal.value.hint or "")
