"""Filters on fields inside of structs: in every form, wherever rows are, whatever is NULL."""

from collections.abc import Iterator

import pyarrow.compute as pc
import pytest

import neve
from neve.errors import InvalidArgument, NotFound, SchemaMismatch
from tests.unit.read.nested_tables import PLACES, nested_table

_ROWS: list[dict[str, object]] = [
    {"id": 1, "s": {"a": 5, "name": "five", "in": {"x": 0.5, "zip.code": 9}}, "s.flat": 5},
    {"id": 2, "s": {"a": 7, "name": None, "in": None}},
    {"id": 3, "s": {"a": None, "name": "none", "in": {"x": float("nan"), "zip.code": None}}},
    {"id": 4, "s": None, "s.flat": 7},
]


@pytest.fixture(params=PLACES)
def table(request: pytest.FixtureRequest) -> Iterator[neve.Table]:
    with nested_table(request.param, _ROWS) as made:
        yield made


def found(table: neve.Table, asked: neve.Filter | None) -> list[object]:
    ids = [row["id"] for row in table.scan(asked, columns=["id"]).to_arrow().to_pylist()]
    assert table.scan(asked).count() == len(ids)
    return ids


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ("s.a = 5", [1]),
        ("s.a != 5", [2]),
        ("not s.a = 5", [2]),
        ("s.a > 5.5", [2]),
        ("s.a in (5, 7, 9)", [1, 2]),
        ("s.a not in (5)", [2]),
        ("s.a is null", [3, 4]),
        ("s.a is not null", [1, 2]),
        ("s is null", [4]),
        ("s.name like 'f%'", [1]),
        ("s.in.x is nan", [3]),
        ("s.in.x < 1", [1]),
        ("not s.in.x < 1", [3]),
        ("s.in is null", [2, 4]),
        ('"s"."in"."zip.code" = 9', [1]),
        ("s.flat = 7", [4]),
        ("s.a = 5 or s.flat = 7", [1, 4]),
        ("s.a >= 5 and id > 1", [2]),
        (neve.col("s.a") == 5, [1]),
        (~neve.col("s.a").is_null(), [1, 2]),
        (pc.field("s", "a") == 5, [1]),
    ],
    ids=str,
)
def test_a_dot_leads_into_a_struct(table: neve.Table, asked: neve.Filter, ids: list[int]) -> None:
    assert found(table, asked) == ids


def test_rows_are_deleted_by_what_is_inside_of_a_struct(table: neve.Table) -> None:
    table.delete_where("s.a = 5")

    assert found(table, None) == [2, 3, 4]


def test_a_field_that_was_renamed_widened_or_added_is_found_in_old_rows(
    table: neve.Table,
) -> None:
    with table.evolve() as e:
        e.rename_column("s.a", "b")
        e.widen_column("s.b", "long")
        e.add_column("s.new", "string")
        e.rename_column("s", "t")
    table.put({"id": 9, "t": {"b": 2**40, "new": "here"}})

    assert found(table, "t.b = 5") == [1]
    assert found(table, "t.b > 5") == [2, 9]
    assert found(table, f"t.b = {2**40}") == [9]
    assert found(table, "t.new is null") == [1, 2, 3, 4]
    assert found(table, "t.new = 'here'") == [9]
    with pytest.raises(NotFound, match=r"no column is named 's\.a'"):
        table.scan("s.a = 5")


def test_an_arrow_expression_chooses_the_same_rows(table: neve.Table) -> None:
    rows = table.scan().to_arrow()
    for asked in (neve.col("s.a") != 5, neve.col("s.in.x").is_nan(), neve.col("s.a").is_null()):
        bound = asked.bind(table.schema)
        assert rows.filter(bound.to_arrow()).column("id").to_pylist() == found(table, asked)


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ("s.A = 5", NotFound, "no field is named 's.A'. Did you mean 'a'?"),
        ("s.zzz = 5", NotFound, "'s' has 'a', 'name', 'in'"),
        ("s.in.zzz = 5", NotFound, "'s.in' has 'x', 'zip.code'"),
        ("s.a.x = 5", NotFound, "'s.a' is of type int"),
        ("tags.element = 5", NotFound, "'tags' is of type list"),
        ("tags.element.a = 5", NotFound, "'tags' is of type list"),
        ("zzz.a = 5", NotFound, "The table has 'id', 's', 's.flat', 'tags'"),
        ("s.in = 5", InvalidArgument, "is_null and not_null"),
        ("s.a = 'x'", SchemaMismatch, "'s.a'"),
    ],
    ids=str,
)
def test_a_field_that_cannot_be_asked_is_refused_with_what_can(
    table: neve.Table, asked: str, kind: type[neve.NeveError], said: str
) -> None:
    with pytest.raises(kind) as refused:
        table.scan(asked)

    assert said in str(refused.value)
