"""FileOrder: whatever was added and removed, the order is that of the files that are left."""

from random import Random

import pytest

from neve.model.data_file import DataFile, PartitionValue
from neve.model.version import FileOrder


def file(
    name: str, low: str, high: str, *, level: int = 1, spec_id: int = 0, partition: bytes = b""
) -> DataFile:
    return DataFile(
        path=name,
        file_bytes=1,
        row_count=1,
        level=level,
        key_min=low.encode(),
        key_max=high.encode(),
        spec_id=spec_id,
        partition=(PartitionValue(field_id=1, value=partition),) if partition else (),
    )


THREE = [file("f1", "a", "c"), file("f3", "q", "s"), file("f2", "g", "k")]


@pytest.mark.parametrize(
    ("key", "found"),
    [("A", ["f1"]), ("d", ["f1", "f2"]), ("l", ["f2", "f3"]), ("t", ["f3"])],
)
def test_neighbours_are_those_between_which_a_file_would_come(key: str, found: list[str]) -> None:
    assert list(FileOrder.of(THREE).neighbours(file("new", key, key))) == found


def test_a_file_is_no_neighbour_of_its_own() -> None:
    assert list(FileOrder.of(THREE).neighbours(THREE[2])) == ["f1", "f3"]


def test_files_that_begin_with_one_key_are_neighbours() -> None:
    order = FileOrder.of([*THREE, file("twin", "g", "h")])

    assert list(order.neighbours(THREE[2])) == ["f1", "twin"]


def test_levels_specs_and_partitions_have_an_order_each() -> None:
    order = FileOrder.of(
        [
            *THREE,
            file("deeper", "b", "d", level=2),
            file("apart", "b", "d", partition=b"x"),
            file("respecified", "b", "d", spec_id=1, partition=b"x"),
            file("young", "b", "d", level=0),
        ]
    )

    assert sorted(order.adjacent()) == [("f1", "f2"), ("f2", "f3")]
    assert list(order.neighbours(file("new", "e", "f", level=2))) == ["deeper"]
    assert list(order.neighbours(file("new", "e", "f", level=3))) == []


def test_an_order_stays_as_it_was_when_another_is_made_of_it() -> None:
    before = FileOrder.of(THREE)

    after = before.after([THREE[2]], [file("new", "m", "n")])

    assert list(before.adjacent()) == [("f1", "f2"), ("f2", "f3")]
    assert list(after.adjacent()) == [("f1", "new"), ("new", "f3")]


def test_a_change_of_level_0_changes_no_order() -> None:
    before = FileOrder.of(THREE)

    assert before.after([], [file("young", "a", "z", level=0)]) is before


def test_after_any_changes_the_order_is_the_same_as_one_made_anew() -> None:
    rng = Random(5)
    files: list[DataFile] = []
    order = FileOrder()
    for step in range(300):
        removed = rng.sample(files, min(len(files), rng.randrange(3)))
        added = [
            file(
                f"{step}-{n}",
                f"{rng.randrange(40):02}",
                "99",
                level=rng.randrange(3),
                partition=rng.choice((b"", b"x")),
            )
            for n in range(rng.randrange(4))
        ]
        files = [kept for kept in files if kept not in removed] + added
        order = order.after(removed, added)

        assert order == FileOrder.of(files)
