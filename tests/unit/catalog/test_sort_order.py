"""Sort orders: the first columns of the key; they follow renames."""

import pyarrow as pa
import pytest

from neve.catalog.sort_order import SortField, SortOrder
from neve.errors import InvalidArgument, NotFound
from neve.model.schema import TableSchema
from tests.unit.catalog.builders import ORDERS, orders_schema, with_renamed

SCHEMA = orders_schema()
WIDE = TableSchema.from_arrow(ORDERS, primary_key=["customer", "id"])


@pytest.mark.parametrize("texts", [[], ["customer"], ["customer", "id"]])
def test_the_order_of_the_key_and_its_beginnings_can_be_asked_for(texts: list[str]) -> None:
    assert [str(field) for field in SortOrder.parse(texts, WIDE).fields] == texts


@pytest.mark.parametrize(
    "texts", [["amount"], ["id"], ["id", "customer"], ["-customer"], ["customer", "id", "amount"]]
)
def test_any_other_order_is_refused_with_the_key(texts: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"CATALOG-36: .*key \['customer', 'id'\]"):
        SortOrder.parse(texts, WIDE)


def test_text_and_fields_say_the_same() -> None:
    order = SortOrder.parse(["customer", "id"], WIDE)

    assert order.fields == (SortField("customer"), SortField("id"))
    assert str(order) == "customer,id"
    assert SortOrder.from_text(str(order)) == order
    assert SortOrder.from_text("-id") == SortOrder((SortField("id", descending=True),))
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


def test_an_order_follows_renames() -> None:
    order = SortOrder.parse(["id"], SCHEMA)

    assert str(order.renamed(SCHEMA, with_renamed(SCHEMA, "id", "number"))) == "number"
    with pytest.raises(InvalidArgument, match="cannot be sorted by"):
        order.renamed(SCHEMA, with_renamed(SCHEMA, "id", "net,gross"))
