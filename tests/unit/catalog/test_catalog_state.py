"""The catalog's root as a value: names and ids, and what cannot be a root."""

import json
import re
from collections.abc import Callable
from uuid import UUID

import pytest

from neve.catalog.catalog_state import CatalogState, is_table_id, make_table_id
from neve.catalog.table_name import TableName
from neve.errors import AlreadyExists, Corruption, InvalidArgument, NotFound
from neve.storage.table_paths import check_path

UUID_1 = UUID("9f86d081-884c-4d65-9a2f-eaa0c55ad015")
UUID_2 = UUID("2c26b46b-68ff-46ec-b99b-453c1d304134")
ORDERS = TableName("shop", "orders")
ITEMS = TableName("shop.eu", "items")

STATE = (
    CatalogState()
    .with_namespace("shop", {"owner": "anna"})
    .with_table(ORDERS, UUID_1)
    .with_table(ITEMS, UUID_2)
)


def test_the_document_is_the_one_the_module_draws() -> None:
    assert json.loads(STATE.encode()) == {
        "format": 1,
        "next_ordinal": 3,
        "namespaces": {"shop": {"owner": "anna"}, "shop.eu": {}},
        "tables": {
            "shop.orders": "t000001-9f86d081884c",
            "shop.eu.items": "t000002-2c26b46b68ff",
        },
    }
    assert CatalogState.decode(STATE.encode(), path="p") == STATE


@pytest.mark.parametrize(
    "break_it",
    [
        lambda root: root.update(format=2),
        lambda root: root.update(next_ordinal=2),
        lambda root: root.update(next_ordinal=-1),
        lambda root: root.pop("tables"),
        lambda root: root.pop("namespaces"),
        lambda root: root.update(tables=["shop.orders"]),
        lambda root: root.update(namespaces={"shop": "anna", "shop.eu": {}}),
        lambda root: root.update(namespaces={"shop": {"a": 1}, "shop.eu": {}}),
        lambda root: root.update(namespaces=[]),
        lambda root: root["namespaces"].pop("shop"),
        lambda root: root["namespaces"].pop("shop.eu"),
        lambda root: root["namespaces"].update({"..": {}}),
        lambda root: root["tables"].update({"shop.orders": "../../etc"}),
        lambda root: root["tables"].update({"shop.orders": "t1-9f86d081884c"}),
        lambda root: root["tables"].update({"shop.orders": "t000002-2c26b46b68ff"}),
        lambda root: root["tables"].update({"shop.orders": 7}),
        lambda root: root["tables"].update({"orders": "t000001-9f86d081884c"}),
        lambda root: root["tables"].update({"shop.a/b": "t000001-9f86d081884c"}),
    ],
    ids=range(18),
)
def test_a_root_that_cannot_be_is_corruption(
    break_it: Callable[[dict[str, object]], object],
) -> None:
    root = json.loads(STATE.encode())
    break_it(root)

    with pytest.raises(Corruption) as damage:
        CatalogState.decode(json.dumps(root).encode(), path="manifest/catalog/root")

    assert damage.value.path == "manifest/catalog/root"


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_document_are_corruption(payload: bytes) -> None:
    with pytest.raises(Corruption):
        CatalogState.decode(payload, path="root")


def test_an_id_is_an_ordinal_and_a_part_of_the_uuid_and_fits_a_path() -> None:
    assert make_table_id(7, UUID_1) == "t000007-9f86d081884c"
    assert make_table_id(12_345_678, UUID_1) == "t12345678-9f86d081884c"
    check_path(make_table_id(7, UUID_1))


@pytest.mark.parametrize("text", ["", "t000001", "../x", "t000001-9f86d081884c/..", "T000001-9f86"])
def test_other_texts_are_no_ids(text: str) -> None:
    assert not is_table_id(text)


def test_ordinals_are_never_given_out_again() -> None:
    emptied = STATE.without_table("t000002-2c26b46b68ff").without_table("t000001-9f86d081884c")

    again = emptied.with_table(ORDERS, UUID_1)

    assert again.table_id("shop.orders") == "t000003-9f86d081884c"


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(AlreadyExists, match=r"shop\.orders"):
        STATE.with_table(ORDERS, UUID_2)
    with pytest.raises(AlreadyExists):
        STATE.with_namespace("shop.eu", {})
    with pytest.raises(AlreadyExists):
        STATE.with_renamed(ORDERS, ITEMS)
    with pytest.raises(AlreadyExists):
        STATE.with_renamed(ORDERS, ORDERS)


def test_an_unknown_name_is_refused_with_the_most_similar_one() -> None:
    with pytest.raises(NotFound, match=re.escape("Did you mean 'shop.orders'?")):
        STATE.table_id("shop.ordes")
    with pytest.raises(NotFound, match=re.escape("Did you mean 'shop'?")):
        STATE.tables_in("shopp")
    with pytest.raises(NotFound, match="list_namespaces"):
        STATE.without_namespace("zzz")
    with pytest.raises(NotFound):
        STATE.namespace_properties("zzz")
    with pytest.raises(NotFound):
        STATE.with_renamed(TableName("shop", "none"), TableName("shop", "new"))


def test_a_namespace_that_holds_something_stays() -> None:
    with pytest.raises(InvalidArgument, match=r"not empty: 'shop.orders', 'shop.eu'"):
        STATE.without_namespace("shop")
    many = STATE
    for number in range(5):
        many = many.with_table(TableName("shop", f"t{number}"), UUID_1)
    with pytest.raises(InvalidArgument, match="and 4 more"):
        many.without_namespace("shop")


def test_an_empty_namespace_goes() -> None:
    emptied = STATE.without_table("t000002-2c26b46b68ff").without_namespace("shop.eu")

    assert list(emptied.namespaces) == ["shop"]


def test_a_renamed_table_keeps_its_id_and_gets_a_namespace() -> None:
    renamed = STATE.with_renamed(ORDERS, TableName("a.b", "c"))

    assert renamed.table_id("a.b.c") == "t000001-9f86d081884c"
    assert "shop.orders" not in renamed.tables
    assert {"a", "a.b"} <= set(renamed.namespaces)
    assert renamed.name_of("t000001-9f86d081884c") == "a.b.c"
    assert renamed.name_of("t000009-000000000000") is None


def test_listings_are_of_one_namespace_and_in_order() -> None:
    assert STATE.tables_in("shop") == ["shop.orders"]
    assert STATE.tables_in("shop.eu") == ["shop.eu.items"]
    assert STATE.namespaces_below("shop") == ["shop.eu"]
    assert STATE.namespace_properties("shop") == {"owner": "anna"}
