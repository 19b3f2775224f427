"""One tree of an inspected file, drawn for people and written for programs."""

import json
from collections.abc import Iterator

import pytest
from rich.text import Text

from neve.inspect.page import Group, Line, Part, Tree, damaged, draw_tree, write_tree


def a_tree() -> Tree:
    found: list[str] = []

    def parts() -> Iterator[Part]:
        for number in range(3):
            found.append(f"part {number}")
            yield Part(
                json={"number": number},
                title=Line(Text(f"part {number}")),
                lines=[Line(Text("a line that is too long for the page"))] if number else [],
                is_box=number > 0,
            )
        yield Part(json=None, title=Line(Text("… 2 more")), is_box=False)

    lines = [Part(json=each, lines=[Line(Text(f"column {each}"), None)]) for each in "ab"]
    return Tree(
        name="file\x1b",
        facts=["3 bytes", "3 parts"],
        members={"file": "file"},
        groups=[
            Group(name="columns", parts=lines, title=Text("2 columns")),
            Group(name="parts", parts=parts()),
        ],
        last_members=lambda: {"problems": found},
        verdicts=lambda: [damaged(each) for each in found[-1:]],
        find_problems=lambda: found,
    )


def test_a_drawing_has_boxes_and_its_verdict_comes_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    draw_tree(a_tree())

    assert capsys.readouterr().out.splitlines() == [
        "file\\x1b  3 bytes · 3 parts",
        "╭─ 2 columns",
        "│ column a",
        "│ column b",
        "╰─",
        "part 0",
        *("╭─ part 1", "│ a line that is too long for the page", "╰─"),
        *("╭─ part 2", "│ a line that is too long for the page", "╰─"),
        "… 2 more",
        "✗ part 2",
    ]


def test_json_has_an_array_for_each_group_and_leaves_out_what_is_only_drawn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = a_tree()

    write_tree(tree)

    assert json.loads(capsys.readouterr().out) == {
        "file": "file",
        "columns": ["a", "b"],
        "parts": [{"number": 0}, {"number": 1}, {"number": 2}],
        "problems": ["part 0", "part 1", "part 2"],
    }
    assert tree.find_problems() == ["part 0", "part 1", "part 2"]
