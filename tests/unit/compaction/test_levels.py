import pytest

from neve.compaction.plan import LevelOptions
from neve.errors import InvalidArgument
from neve.model.data_file import FileFormat

LEAST = {
    "level0_files": 1,
    "level1_bytes": 1,
    "level_ratio": 2,
    "file_bytes": 1,
    "job_bytes_max": 1,
    "dual_levels": 0,
    "levels_max": 2,
}


@pytest.mark.parametrize(("option", "least"), LEAST.items(), ids=LEAST)
def test_an_option_below_its_least_value_is_refused_by_name(option: str, least: int) -> None:
    LevelOptions(**{option: least})

    with pytest.raises(InvalidArgument, match=rf"{option}=.* integer >= {least}$"):
        LevelOptions(**{option: least - 1})


@pytest.mark.parametrize("value", [1.5, "4", None, True], ids=repr)
def test_a_count_that_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="level0_files"):
        LevelOptions(level0_files=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [0, -0.1, 1.01, float("nan"), "0.3", True], ids=repr)
def test_a_garbage_ratio_that_is_no_share_is_refused(ratio: object) -> None:
    with pytest.raises(InvalidArgument, match="garbage_ratio"):
        LevelOptions(garbage_ratio=ratio)  # type: ignore[arg-type]


def test_each_level_holds_a_ratio_more_and_the_last_one_everything() -> None:
    options = LevelOptions(level1_bytes=100, level_ratio=10, levels_max=4)

    assert [options.bytes_max(level) for level in (1, 2, 3, 4)] == [100, 1000, None, None]


def test_young_levels_are_dual_and_the_others_columnar() -> None:
    formats = [LevelOptions(dual_levels=1).format_of(level) for level in (0, 1, 2)]

    assert formats == [FileFormat.DUAL, FileFormat.COLUMNAR, FileFormat.COLUMNAR]


def test_everything_goes_to_the_first_columnar_level_that_holds_it() -> None:
    options = LevelOptions(level1_bytes=100, level_ratio=10, levels_max=5)

    assert [options.level_for(size) for size in (0, 100, 1000, 1001, 1 << 60)] == [2, 2, 2, 3, 4]


def test_where_all_levels_are_dual_everything_goes_to_the_last() -> None:
    assert LevelOptions(dual_levels=9, levels_max=3).level_for(1) == 2
