"""The picture of a table's levels, as text and as SVG."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from examples.demo.level_picture import levels_of_listing, picture_lines
from neve.model.data_file import DataFile, VectorRef
from neve.notebook import FileBar, LevelBar, levels_of, levels_svg
from tests.unit.model.page_checks import Page


def a_level(number: int, *files: tuple[int, int]) -> LevelBar:
    """Return a level of files, each of so many rows with so many of them marked."""
    return LevelBar(
        number=number,
        files=tuple(
            FileBar(row_count=rows, marked_count=marked, byte_count=rows * 30)
            for rows, marked in files
        ),
    )


def levels_text(levels: Sequence[LevelBar], *, unflushed: int = 0, columns: int = 40) -> str:
    lines = picture_lines(levels, unflushed=unflushed, columns=columns)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def a_file(path: str, *, level: int, rows: int, marked: int = 0) -> DataFile:
    vector = VectorRef(path="v", offset=0, length=1, cardinality=marked) if marked else None
    return DataFile(
        path=path,
        file_bytes=100,
        row_count=rows,
        level=level,
        key_min=b"a",
        key_max=b"b",
        vector=vector,
    )


def test_bars_are_to_scale_with_marked_rows_behind_live_ones() -> None:
    levels = [a_level(0, (100, 0)), a_level(1, (1_000, 0), (1_000, 500)), a_level(3, (200, 200))]

    drawn = levels_text(levels, unflushed=200, columns=21)

    assert drawn.split("\n") == [
        "memory   ▓▓                     200 changes not flushed",
        "level 0  █                       1 file    100 live rows               3.0 kB",
        "level 1  ██████████ █████·····  2 files  1,500 live rows  500 marked  60.0 kB",
        "level 3  ··                      1 file      0 live rows  200 marked   6.0 kB",
    ]


def test_what_has_rows_is_never_drawn_as_nothing() -> None:
    levels = [a_level(0, (1, 0)), a_level(1, (1_000_000, 1)), a_level(2, (1_000_000, 999_999))]

    first, second, third = levels_text(levels, unflushed=0, columns=20).split("\n")

    assert first.startswith("level 0  █ ")
    assert second.startswith(f"level 1  {'█' * 19}· ")
    assert third.startswith(f"level 2  █{'·' * 19} ")


def test_files_that_do_not_fit_are_drawn_as_one() -> None:
    many = a_level(0, *[(10, 5)] * 500)

    assert levels_text([many], columns=20).startswith(f"level 0  {'█' * 10}{'·' * 10}  500 files")
    assert Page(levels_svg([many])).elements.count("rect") == 2


@pytest.mark.parametrize("columns", [1, 2, 7, 40])
def test_no_line_is_wider_than_asked(columns: int) -> None:
    levels = [a_level(0, *[(1, 0)] * 9), a_level(1, (70, 1), (1, 1), (0, 0)), a_level(2, (3, 1))]

    for line in levels_text(levels, columns=columns).split("\n"):
        bar = line.removeprefix("level ")[3:].split(" file")[0].rstrip("0123456789")
        assert len(bar.rstrip()) <= columns + 1


def test_a_table_without_rows_has_a_picture_too() -> None:
    assert levels_text([]) == ""
    assert levels_svg([]) == ""
    assert levels_text([], unflushed=1).startswith("memory  ▓")


def test_levels_come_from_facts_of_files_and_from_their_listing_alike() -> None:
    files = [
        a_file("a", level=2, rows=10),
        a_file("b", level=0, rows=4, marked=3),
        a_file("c", level=2, rows=1),
    ]
    listing = pa.table(
        {
            "level": [file.level for file in files],
            "record_count": [file.row_count for file in files],
            "deleted_count": [file.deleted_count for file in files],
            "file_size_bytes": [file.file_bytes for file in files],
        }
    )

    levels = levels_of(files)

    assert [level.number for level in levels] == [0, 2]
    assert levels[0].whole.live_count == 1
    assert levels[1].whole.byte_count == 200
    assert levels_of_listing(listing) == levels


def test_the_svg_says_of_each_file_what_it_holds() -> None:
    page = Page(levels_svg([a_level(0, (100, 20)), a_level(1, (300, 0))], unflushed=7))

    assert "7 changes not flushed" in page.texts
    assert page.texts.count("80 live rows, 20 marked, 3.0 kB") == 2
    assert "1 file, 300 live rows, 9.0 kB" in page.texts


def test_the_svg_is_wide_enough_for_its_words() -> None:
    small, large = levels_svg([a_level(0, (1, 0))]), levels_svg([a_level(0, (10**15, 10**14))])

    widths = [int(each.split('width="')[1].split('"')[0]) for each in (small, large)]
    assert widths[0] < widths[1]
