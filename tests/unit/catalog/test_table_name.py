"""Names of namespaces and tables: what is refused, and how the rest is taken apart."""

import pytest

from neve.catalog.table_name import (
    NAME_BYTES_MAX,
    NAME_PARTS_MAX,
    TableName,
    check_namespace,
    with_ancestors,
)
from neve.errors import InvalidArgument

HOSTILE = [
    "",
    ".",
    "..",
    "shop.",
    ".orders",
    "shop..orders",
    "shop. orders",
    "shop./etc/passwd",
    "../../shop.orders",
    "shop.or\0ders",
    "shop.\x1b[31mred",
    "shop.\ud800",
    "shop.a\u2028b",
    "a" * 256 + ".orders",
    "shop." + "a" * 256,
    ".".join(["a"] * (NAME_PARTS_MAX + 1)),
    "ä" * (NAME_BYTES_MAX // 2) + ".t",
    "x" * 10_000_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:30])
def test_what_cannot_be_a_table_name_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        TableName.parse(text)

    assert refusal.value.hint
    assert len(str(refusal.value)) < 1_000
    assert str(refusal.value).isprintable()


def test_a_table_without_a_namespace_is_told_how_to_write_it() -> None:
    with pytest.raises(InvalidArgument, match=r"no namespace.*default\.orders"):
        TableName.parse("orders")


@pytest.mark.parametrize("name", [None, 7, b"shop.orders", ("shop", "orders")])
def test_a_name_is_text(name: object) -> None:
    with pytest.raises(InvalidArgument, match="is text"):
        TableName.parse(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="is text"):
        check_namespace(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "namespace", "table"),
    [
        ("shop.orders", "shop", "orders"),
        ("eu.berlin.shop.orders", "eu.berlin.shop", "orders"),
        ("Straße.Ärzte", "Straße", "Ärzte"),
        ("a b.c'; drop table x --", "a b", "c'; drop table x --"),
    ],
)
def test_the_last_part_is_the_table(text: str, namespace: str, table: str) -> None:
    name = TableName.parse(text)

    assert (name.namespace, name.table) == (namespace, table)
    assert str(name) == text


def test_a_namespace_lies_in_those_before_its_dots() -> None:
    assert with_ancestors("eu.berlin.shop") == ("eu", "eu.berlin", "eu.berlin.shop")
