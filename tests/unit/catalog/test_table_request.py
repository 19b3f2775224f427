"""Definitions: checked before anything is written, and compared with a table that exists."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import pyarrow as pa
import pytest

from neve.catalog.table_request import TableRequest
from neve.errors import InvalidArgument, NeveError, NotFound, SchemaMismatch
from neve.model.schema import TableSchema
from tests.unit.catalog.builders import ORDERS, orders_schema, with_renamed


def defined(
    *,
    name: str = "shop.orders",
    schema: pa.Schema | TableSchema = ORDERS,
    key: str | Sequence[str] = ("id",),
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    schema_version: int = 0,
) -> TableRequest:
    return TableRequest.of(
        name,
        schema,
        key,
        partition_by=partition_by,
        sort_by=sort_by,
        properties=properties,
        schema_version=schema_version,
    )


META = defined(partition_by=["day(ts)"]).as_meta(
    table_id="t000001-9f86d081884c", table_uuid=UUID(int=1), now_ms=0
)


def test_everything_that_is_wrong_is_found_before_anything_is_written() -> None:
    nanoseconds = pa.schema({"id": pa.int64(), "t": pa.timestamp("ns")})
    refused: list[tuple[type[NeveError], dict[str, object]]] = [
        (InvalidArgument, {"name": "orders"}),
        (NotFound, {"key": ["idd"]}),
        (InvalidArgument, {"key": []}),
        (NotFound, {"key": "idd"}),
        (NotFound, {"partition_by": ["day(tss)"]}),
        (InvalidArgument, {"partition_by": ["dya(ts)"]}),
        (InvalidArgument, {"partition_by": ["day(customer)"]}),
        (NotFound, {"sort_by": ["amuont"]}),
        (InvalidArgument, {"properties": {"format-version": "9"}}),
        (SchemaMismatch, {"schema": nanoseconds, "properties": {"format-version": "2"}}),
        (InvalidArgument, {"schema": {"id": "lnog"}}),
        (InvalidArgument, {"schema": orders_schema(), "key": ["customer"]}),
        (InvalidArgument, {"schema_version": -1}),
        (InvalidArgument, {"schema_version": 1 << 31}),
    ]
    for error_type, arguments in refused:
        with pytest.raises(error_type) as refusal:
            defined(**arguments)  # type: ignore[arg-type]
        assert refusal.value.hint


@pytest.mark.parametrize(
    ("other", "different"),
    [
        (defined(partition_by=["day(ts)"]), ()),
        (defined(partition_by=["day(ts)"], properties={"owner": "ben"}), ()),
        (defined(partition_by=["day(ts)"], schema=orders_schema()), ()),
        (defined(partition_by=["day(ts)"], key=["id", "customer"]), ("key layout",)),
        (
            defined(
                partition_by=["day(ts)"],
                schema=with_renamed(orders_schema(), "customer", "client"),
            ),
            ("schema fingerprint",),
        ),
        (defined(partition_by=["day(ts)"], schema_version=1), ("schema version",)),
        (defined(partition_by=["hour(ts)"]), ("partition spec",)),
        (defined(partition_by=["day(ts)"], sort_by=["id"]), ("sort order",)),
        (
            defined(partition_by=["day(ts)"], properties={"neve.retention.versions": "9"}),
            ("retention",),
        ),
        (
            defined(key=["customer"], schema_version=3),
            ("key layout", "schema version", "partition spec"),
        ),
    ],
    ids=range(10),
)
def test_a_difference_is_named(other: TableRequest, different: tuple[str, ...]) -> None:
    assert other.differences(META) == different


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (defined(partition_by=["day(ts)"]), ()),
        (defined(partition_by=["day(ts)"], key="id"), ()),
        (defined(partition_by=["day(ts)"], properties={"owner": "ben"}), ()),
        (defined(partition_by=["day(ts)"], schema=orders_schema()), ()),
        (
            defined(partition_by=["day(ts)"], key=["id", "customer"]),
            ("the primary key is 'id', not 'id', 'customer'", "column 'customer' may be NULL"),
        ),
        (
            defined(
                partition_by=["day(ts)"],
                schema=with_renamed(orders_schema(), "customer", "client"),
            ),
            ("it has no column 'client'", "it also has a column 'customer'"),
        ),
        (defined(), ("it is partitioned by day of 'ts', not by nothing",)),
        (
            defined(partition_by=["day(ts)"], sort_by=["id"]),
            ("it is sorted by nothing, not by id",),
        ),
    ],
    ids=range(8),
)
def test_a_difference_is_said_in_words(other: TableRequest, words: tuple[str, ...]) -> None:
    assert other.unlike(META) == words


def test_a_type_and_a_column_that_may_be_null_are_differences() -> None:
    fields = [
        each.with_type(pa.int64()).with_nullable(True) if each.name == "amount" else each
        for each in ORDERS
    ]
    required = [each.with_nullable(False) for each in ORDERS]

    assert defined(partition_by=["day(ts)"], schema=pa.schema(fields)).unlike(META) == (
        "column 'amount' is float, not long",
    )
    assert "column 'amount' may be NULL" in defined(
        partition_by=["day(ts)"], schema=pa.schema(required)
    ).unlike(META)


def test_an_arrow_schema_and_a_table_schema_define_the_same() -> None:
    assert defined() == defined(schema=orders_schema())
