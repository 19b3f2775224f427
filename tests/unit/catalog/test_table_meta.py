"""The catalog's document of a table: its bytes, and what cannot be one."""

import json
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from neve.catalog.table_meta import TableMeta, meta_key
from neve.catalog.table_request import TableRequest
from neve.errors import Corruption, LimitExceeded
from neve.model.schema import TableSchema
from tests.unit.catalog.builders import ORDERS, orders_schema, with_renamed

META = TableRequest.of(
    "shop.orders",
    ORDERS,
    ["id"],
    partition_by=["day(ts)", "bucket(16, id)"],
    sort_by=["id"],
    properties={"owner": "anna", "neve.retention.versions": "7"},
).as_meta(
    table_id="t000001-9f86d081884c",
    table_uuid=UUID("9f86d081-884c-4d65-9a2f-eaa0c55ad015"),
    now_ms=1_700_000_000_000,
)


def test_the_key_is_the_name_below_the_system_tables() -> None:
    assert meta_key(META.name) == "__tables/shop.orders"


def test_the_document_is_the_one_the_module_draws() -> None:
    assert json.loads(META.encode()) == {
        "format": 1,
        "name": "shop.orders",
        "table_id": "t000001-9f86d081884c",
        "table_uuid": "9f86d081-884c-4d65-9a2f-eaa0c55ad015",
        "format_version": 3,
        "location": "tables/t000001-9f86d081884c",
        "updated_ms": 1_700_000_000_000,
        "schemas": [json.loads(orders_schema().to_json())],
        "schema_version": 0,
        "fingerprint": orders_schema().fingerprint(),
        "specs": [
            {
                "spec-id": 0,
                "fields": [
                    {"source-id": 4, "field-id": 1000, "name": "ts_day", "transform": "day"},
                    {
                        "source-id": 1,
                        "field-id": 1001,
                        "name": "id_bucket",
                        "transform": "bucket[16]",
                    },
                ],
            }
        ],
        "spec_id": 0,
        "sort_order": "id",
        "primary_key": ["id"],
        "properties": {"owner": "anna", "neve.retention.versions": "7"},
        "retention_versions": 7,
        "retention_ms": 86_400_000,
        "as_of_version": 1,
    }


def test_what_was_written_is_read_back() -> None:
    assert TableMeta.decode(META.encode(), path="p") == META


@pytest.mark.parametrize(
    "break_it",
    [
        lambda meta: meta.update(format=9),
        lambda meta: meta.update(name=None),
        lambda meta: meta.update(table_id="../../etc"),
        lambda meta: meta.update(table_id="a/b"),
        lambda meta: meta.update(table_uuid="no uuid"),
        lambda meta: meta.update(format_version=2),
        lambda meta: meta["properties"].update({"format-version": "x"}),
        lambda meta: meta["properties"].update({"a": 1}),
        lambda meta: meta["properties"].update({"neve.retention.versions": "x"}),
        lambda meta: meta.update(schemas=[]),
        lambda meta: meta.update(schemas=["x"]),
        lambda meta: meta.update(schemas={}),
        lambda meta: meta["schemas"][0].update(type="list"),
        lambda meta: meta["schemas"][0]["fields"].pop(),
        lambda meta: meta.update(schema_version=1),
        lambda meta: meta.update(fingerprint="0" * 64),
        lambda meta: meta.update(primary_key=["customer"]),
        lambda meta: meta.update(specs=[]),
        lambda meta: meta.update(spec_id=1),
        lambda meta: meta["specs"][0]["fields"][0].update({"transform": "eval[1]"}),
        lambda meta: meta.update(sort_order=3),
        lambda meta: meta.update(retention_versions=-1),
        lambda meta: meta.pop("updated_ms"),
    ],
    ids=range(23),
)
def test_a_document_that_cannot_be_is_corruption(
    break_it: Callable[[dict[str, object]], object],
) -> None:
    meta = json.loads(META.encode())
    break_it(meta)

    with pytest.raises(Corruption) as damage:
        TableMeta.decode(json.dumps(meta).encode(), path="manifest/catalog/__tables/shop.orders")

    assert damage.value.path == "manifest/catalog/__tables/shop.orders"


def test_properties_of_a_newer_neve_do_not_keep_a_table_from_being_read() -> None:
    newer = replace(META, properties={"neve.something.new": "1"})

    assert TableMeta.decode(newer.encode(), path="p") == newer


def a_wide_schema(schema_id: int, *, doc_bytes: int) -> TableSchema:
    schema = replace(orders_schema(), schema_id=schema_id)
    key, *others = schema.columns
    return replace(schema, columns=(replace(key, doc="d" * doc_bytes), *others))


def test_of_many_large_schemas_the_newest_stay() -> None:
    schemas = tuple(a_wide_schema(number, doc_bytes=1 << 20) for number in range(6))

    kept = TableMeta.decode(
        replace(META, schemas=schemas, schema_version=5).encode(), path="p"
    ).schemas

    assert [schema.schema_id for schema in kept] == [3, 4, 5]


def test_a_definition_that_no_document_can_hold_is_refused() -> None:
    huge = a_wide_schema(0, doc_bytes=(8 << 20) - 1_000)

    with pytest.raises(LimitExceeded):
        replace(META, schemas=(huge,)).encode()


def test_a_renamed_column_has_another_fingerprint() -> None:
    renamed = replace(META, schemas=(with_renamed(META.schema, "customer", "client"),))

    assert renamed.fingerprint != META.fingerprint
