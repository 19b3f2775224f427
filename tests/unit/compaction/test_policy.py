"""The policy, case by case; `tests/cases/compaction` has the drawings."""

import pytest

from neve.compaction.levels import LevelOptions
from neve.compaction.policy import full_plan, pick, pick_all
from tests.unit.compaction.builders import MIB, data_file, version_of
from tests.unit.compaction.level_drawing import CASES, Case, drawn, read_cases

FILES = sorted(path.name for path in CASES.glob("*.txt"))


def answers(case: Case) -> list[str]:
    version, options, busy = case.version(), case.level_options(), case.busy_paths()
    match case.question:
        case "pick":
            return [drawn(pick(version, options, busy))]
        case "all":
            return [drawn(plan) for plan in pick_all(version, options, busy)]
        case _:
            return [drawn(plan) for plan in full_plan(version, options)] or ["none"]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{name}: {case.title}") for name in FILES for case in read_cases(name)],
)
def test_levels_give_the_plan_that_is_drawn(case: Case) -> None:
    assert answers(case) == case.plans


def test_every_kind_of_plan_is_drawn() -> None:
    drawings = {
        plan.split()[0] for name in FILES for case in read_cases(name) for plan in case.plans
    }

    assert drawings == {"none", "level0", "size", "garbage", "small", "full"}


def test_a_plan_names_the_version_and_exactly_its_files() -> None:
    first = data_file("a", keys=(b"a", b"c"))
    second = data_file("b", keys=(b"b", b"d"))
    below = data_file("x", keys=(b"c", b"f"), level=1)
    version = version_of([first, second, below], number=12)

    plan = pick(version, LevelOptions(level0_files=2))

    assert plan is not None
    assert plan.base == 12
    assert plan.inputs == (first, second, below)
    assert plan.paths == {first.path, second.path, below.path}
    assert (plan.key_min, plan.key_max) == (b"a", b"f")
    assert plan.input_bytes == 30 * MIB
    assert plan.live_count == 300
    assert (plan.spec_id, plan.partition) == (0, ())


def test_partitions_of_two_specs_are_two_partitions() -> None:
    files = [data_file(f"f{spec}", spec_id=spec) for spec in (0, 1)]

    plans = pick_all(version_of(files), LevelOptions(level0_files=1))

    assert [plan.spec_id for plan in plans] == [0, 1]


def test_files_keep_the_size_that_the_option_says() -> None:
    plan = pick(version_of([data_file("a")]), LevelOptions(level0_files=1, file_bytes=3 * MIB))

    assert plan is not None
    assert plan.file_bytes == 3 * MIB


def test_joined_files_are_not_parted_again_by_the_size_of_files() -> None:
    files = [data_file(name, keys=(name.encode(), name.encode()), level=1) for name in "ab"]
    options = LevelOptions()

    plan = pick(version_of(files), options)

    assert plan is not None
    assert plan.file_bytes > options.file_bytes


def test_a_table_without_files_needs_nothing() -> None:
    assert pick(version_of([]), LevelOptions()) is None
    assert pick_all(version_of([]), LevelOptions()) == []


def test_files_below_the_last_level_stay_where_they_are() -> None:
    deep = data_file("a", level=9, file_bytes=1 << 40)

    assert pick(version_of([deep]), LevelOptions()) is None
