"""Which schema may follow which: changes that are fine, and changes that are not."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from neve.catalog.compatibility import check_evolution, check_format
from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.schema import Column, TableSchema
from tests.unit.catalog.builders import with_columns, with_renamed, with_type, without_column

_COLUMNS: dict[str, pa.DataType] = {
    "a": pa.int32(),
    "b": pa.int32(),
    "price": pa.decimal128(9, 2),
    "ratio": pa.float32(),
    "place": pa.struct([("street", pa.string()), ("number", pa.int32())]),
    "tags": pa.list_(pa.int32()),
}
BEFORE = TableSchema.from_arrow(pa.schema(_COLUMNS), primary_key=["a"])
NEXT_ID = BEFORE.last_field_id + 1


def a_column(name: str = "new", *, field_id: int = NEXT_ID, nullable: bool = True) -> Column:
    return Column(field_id=field_id, name=name, type=pa.int64(), nullable=nullable)


def with_inner(column: str, change: Callable[[pa.DataType], pa.DataType]) -> TableSchema:
    """Change the type of a column; one more id may be in use afterwards."""
    roomy = replace(BEFORE, last_field_id=NEXT_ID)
    return with_type(roomy, column, change(BEFORE.column(column).type))


def with_facts(name: str, *, nullable: bool = True, initial_default: object = None) -> TableSchema:
    columns = (
        replace(each, nullable=nullable, initial_default=initial_default)
        if each.name == name
        else each
        for each in BEFORE.columns
    )
    return replace(BEFORE, columns=tuple(columns))


def widened_street_number(type_: pa.DataType) -> pa.DataType:
    assert isinstance(type_, pa.StructType)
    street, number = type_.field(0), type_.field(1)
    return pa.struct([street, number.with_type(pa.int64())])


def with_new_part(*, nullable: bool) -> Callable[[pa.DataType], pa.DataType]:
    def change(type_: pa.DataType) -> pa.DataType:
        assert isinstance(type_, pa.StructType)
        metadata = {"PARQUET:field_id": str(NEXT_ID)}
        new = pa.field("city", pa.string(), nullable=nullable, metadata=metadata)
        return pa.struct([type_.field(0), type_.field(1), new])

    return change


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        with_renamed(BEFORE, "a", "key"),
        without_column(BEFORE, "b"),
        replace(BEFORE, columns=BEFORE.columns[::-1]),
        with_columns(BEFORE, a_column()),
        with_columns(BEFORE, replace(a_column(nullable=False), initial_default=3, write_default=4)),
        with_type(BEFORE, "b", pa.int64()),
        with_type(BEFORE, "ratio", pa.float64()),
        with_type(BEFORE, "price", pa.decimal128(12, 2)),
        with_inner("place", widened_street_number),
        with_inner("place", with_new_part(nullable=True)),
        replace(BEFORE, last_field_id=99),
    ],
    ids=[
        "the same",
        "rename",
        "drop",
        "reorder",
        "add",
        "add with default",
        "int to long",
        "float to double",
        "more digits",
        "inside a struct",
        "add to a struct",
        "skip ids",
    ],
)
def test_rows_written_before_can_be_read_after(after: TableSchema) -> None:
    # Raises SchemaMismatch or InvalidArgument for a change that is not compatible.
    check_evolution(BEFORE, after)


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        (replace(with_facts("b", nullable=False), primary_key=(2,)), "CATALOG-26"),
        (with_type(BEFORE, "a", pa.int64()), "CATALOG-26"),
        (with_columns(BEFORE, a_column(nullable=False)), "CATALOG-30"),
        (with_type(BEFORE, "b", pa.string()), "CATALOG-28"),
        (with_type(BEFORE, "b", pa.float64()), "CATALOG-28"),
        (with_type(BEFORE, "price", pa.decimal128(9, 3)), "CATALOG-28"),
        (with_type(BEFORE, "price", pa.decimal128(8, 2)), "CATALOG-28"),
        (with_type(BEFORE, "place", pa.string()), "CATALOG-28"),
        (with_facts("b", nullable=False), "CATALOG-29"),
        (with_facts("b", initial_default=1), "CATALOG-30"),
        (with_inner("place", with_new_part(nullable=False)), "CATALOG-30"),
    ],
    ids=range(11),
)
def test_a_change_that_would_lose_rows_is_refused_by_its_rule(
    after: TableSchema, rule: str
) -> None:
    with pytest.raises(SchemaMismatch, match=f"^{rule}: ") as refusal:
        check_evolution(BEFORE, after)

    assert refusal.value.hint


def test_an_id_is_never_given_to_another_field() -> None:
    dropped = without_column(BEFORE, "b")
    reused = replace(dropped, columns=(*dropped.columns, a_column(field_id=2)))

    with pytest.raises(InvalidArgument, match=r"CATALOG-27: .* id 2"):
        check_evolution(dropped, reused)


def test_ids_that_were_given_out_stay_given_out() -> None:
    ahead = replace(BEFORE, last_field_id=99)

    with pytest.raises(InvalidArgument, match=r"CATALOG-27: .*from 99 to"):
        check_evolution(ahead, BEFORE)


def test_the_element_of_a_list_stays_the_same_field() -> None:
    def with_other_element(type_: pa.DataType) -> pa.DataType:
        assert isinstance(type_, pa.ListType)
        element = pa.field("element", pa.int32(), metadata={"PARQUET:field_id": str(NEXT_ID)})
        return pa.list_(element)

    after = with_inner("tags", with_other_element)

    with pytest.raises(SchemaMismatch, match="CATALOG-28"):
        check_evolution(BEFORE, after)


def test_format_version_2_has_no_defaults_and_no_nanoseconds() -> None:
    with_default = with_columns(BEFORE, replace(a_column(), initial_default=3))
    with_nanoseconds = with_columns(BEFORE, replace(a_column(), type=pa.timestamp("ns")))

    check_format(BEFORE, 2)
    for schema in (with_default, with_nanoseconds):
        check_format(schema, 3)
        with pytest.raises(SchemaMismatch, match=r"CATALOG-31.*format-version to 3"):
            check_format(schema, 2)
