"""Sort orders: columns that are there, primitive, named once; they follow renames."""

import pyarrow as pa
import pytest

from neve.catalog.sort_order import SortField, SortOrder
from neve.errors import InvalidArgument, NotFound
from neve.model.schema import TableSchema
from tests.unit.catalog.builders import orders_schema, with_renamed, without_column

SCHEMA = orders_schema()


def test_text_and_fields_say_the_same() -> None:
    order = SortOrder.parse(["customer", "-amount"], SCHEMA)

    assert order.fields == (SortField("customer"), SortField("amount", descending=True))
    assert str(order) == "customer,-amount"
    assert SortOrder.from_text(str(order)) == order
    assert SortOrder.from_text("") == SortOrder()


def test_an_unknown_column_is_refused_with_a_similar_one() -> None:
    with pytest.raises(NotFound, match="Did you mean 'amount'"):
        SortOrder.parse(["-amuont"], SCHEMA)


@pytest.mark.parametrize("texts", [["amount", "-amount"], ["id", "id"]])
def test_a_column_is_named_once(texts: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        SortOrder.parse(texts, SCHEMA)


@pytest.mark.parametrize("texts", ["amount", [7], [None]])
def test_columns_are_a_list_of_texts(texts: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        SortOrder.parse(texts, SCHEMA)


@pytest.mark.parametrize("name", ["a,b", "-a"])
def test_a_name_that_could_be_misread_is_refused(name: str) -> None:
    schema = TableSchema.from_arrow(
        pa.schema({"id": pa.int64(), name: pa.int64()}), primary_key=["id"]
    )

    with pytest.raises(InvalidArgument, match="cannot be sorted by"):
        SortOrder.parse([name], schema)


def test_a_nested_column_has_no_order() -> None:
    schema = TableSchema.from_arrow(
        pa.schema({"id": pa.int64(), "tags": pa.list_(pa.string())}), primary_key=["id"]
    )

    with pytest.raises(InvalidArgument, match="has no order"):
        SortOrder.parse(["tags"], schema)


def test_an_order_follows_renames_and_holds_columns_back_from_dropping() -> None:
    order = SortOrder.parse(["-amount"], SCHEMA)

    assert str(order.renamed(SCHEMA, with_renamed(SCHEMA, "amount", "price"))) == "-price"
    with pytest.raises(InvalidArgument, match="cannot be sorted by"):
        order.renamed(SCHEMA, with_renamed(SCHEMA, "amount", "net,gross"))
    with pytest.raises(InvalidArgument, match="sorted by it"):
        order.renamed(SCHEMA, without_column(SCHEMA, "amount"))
