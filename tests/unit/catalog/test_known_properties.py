"""Properties: those neve knows are checked, its own unknown ones refused, others kept."""

import pytest

from neve.catalog.known_properties import (
    PROPERTIES_BYTES_MAX,
    changed_properties,
    check_properties,
    check_texts,
    format_version_of,
    retention_of,
    with_retention,
)
from neve.errors import InvalidArgument, LimitExceeded
from neve.manifest.table_head import Retention


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format-version", "1"),
        ("format-version", "4"),
        ("format-version", "two"),
        ("write.format.default", "orc"),
        ("write.format.default", "avro"),
        ("write.format.default", ""),
        ("write.parquet.compression-codec", "lzo"),
        ("write.parquet.compression-codec", "ZSTD"),
        ("neve.retention.versions", "0"),
        ("neve.retention.versions", "-1"),
        ("neve.retention.versions", "five"),
        ("neve.retention.versions", "٣"),
        ("neve.retention.milliseconds", "1.5"),
        ("neve.retention.milliseconds", "9" * 16),
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "64 MiB"),
        ("schema.name-mapping.default", "[]"),
    ],
)
def test_a_known_property_has_one_of_its_values(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name) as refusal:
        check_properties({name: value})

    assert refusal.value.hint


def test_a_slip_in_neves_own_name_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidArgument, match=r"Did you mean 'neve\.retention\.versions'"):
        check_properties({"neve.retention.version": "7"})
    with pytest.raises(InvalidArgument, match=r"It has neve\.retention\.versions"):
        check_properties({"neve.zzz": "7"})


@pytest.mark.parametrize(
    "properties",
    [{"": "x"}, {"x": 3}, {3: "x"}, {"x": None}, {"x": "\ud800"}, {"\udfff": "x"}],
    ids=range(6),
)
def test_names_and_values_are_texts(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        check_texts(properties)


def test_properties_have_a_limit() -> None:
    with pytest.raises(LimitExceeded) as refusal:
        check_texts({"x": "y" * PROPERTIES_BYTES_MAX})

    assert refusal.value.limit == PROPERTIES_BYTES_MAX


def test_foreign_properties_are_kept_as_they_are() -> None:
    given = {"owner": "anna", "write.format.default": "PARQUET", "Neve.x": "", "neveland": "1"}

    assert check_properties(given) == given


def test_a_format_that_an_older_neve_took_stands_in_the_way_of_no_other_change() -> None:
    before = {"write.format.default": "orc"}

    assert changed_properties(before, given={"owner": "anna"}, removed=()) == {
        **before,
        "owner": "anna",
    }
    assert changed_properties(before, given={}, removed=["write.format.default"]) == {}
    with pytest.raises(InvalidArgument, match="every data file is Parquet"):
        changed_properties({}, given=before, removed=())


def test_the_format_version_only_rises() -> None:
    assert format_version_of({}) == 3
    raised = changed_properties({"format-version": "2"}, given={"format-version": "3"}, removed=())
    assert format_version_of(raised) == 3
    with pytest.raises(InvalidArgument, match="from 3 to 2"):
        changed_properties({}, given={"format-version": "2"}, removed=())


def test_setting_and_removing_leaves_the_rest() -> None:
    before = {"a": "1", "b": "2", "c": "3"}

    assert changed_properties(before, given={"a": "9"}, removed=["b", "none"]) == {
        "a": "9",
        "c": "3",
    }
    with pytest.raises(InvalidArgument, match="both set and removed"):
        changed_properties(before, given={"a": "9"}, removed=["a"])


def test_retention_is_read_from_properties_and_told_by_them() -> None:
    assert retention_of({}) == Retention(versions=5, milliseconds=86_400_000)
    told = with_retention({"x": "y"}, Retention(versions=9, milliseconds=86_400_000))
    assert told == {"x": "y", "neve.retention.versions": "9"}
    assert retention_of(told).versions == 9
    told = with_retention(told, Retention(versions=9, milliseconds=0))
    assert told["neve.retention.milliseconds"] == "0"
    assert with_retention(told, retention_of(told)) == told
