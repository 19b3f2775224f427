"""The shape of the code, held by a test where no linter holds it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "neve").rglob("*.py"))
EVERYTHING = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "examples", "scripts", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix in {".py", ".md", ".toml", ".yml"}
)
MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
DRAWER_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "data", "core"}
GENERATED = re.compile(r"_pb2\.pyi?$")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=module_id)
def test_a_module_is_small_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)

    assert ast.get_docstring(tree), "every module opens with a docstring"
    assert path.stem not in DRAWER_NAMES, "a name says what is inside"
    assert len(text.splitlines()) <= MODULE_LINES_MAX or GENERATED.search(path.name)


@pytest.mark.parametrize("path", SOURCES, ids=module_id)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in functions(ast.parse(path.read_text()))
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]

    assert not long


@pytest.mark.parametrize("path", SOURCES, ids=module_id)
def test_neve_is_imported_at_the_top_and_never_behind_type_checking(path: Path) -> None:
    tree = ast.parse(path.read_text())
    inside = [
        ast.unparse(node)
        for function in functions(tree)
        for node in ast.walk(function)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "neve")
        or (
            isinstance(node, ast.Import) and any(a.name.split(".")[0] == "neve" for a in node.names)
        )
    ]

    assert not inside
    assert "TYPE_CHECKING" not in path.read_text()


@pytest.mark.parametrize("path", SOURCES, ids=module_id)
def test_nothing_that_reads_a_table_can_run_code(path: Path) -> None:
    banned = {"eval", "exec", "compile", "__import__"}
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert not called & banned


def test_a_package_file_only_re_exports() -> None:
    for path in SOURCES:
        if path.name != "__init__.py" or path.parent.name == "neve":  # loads names when used
            continue
        body = ast.parse(path.read_text()).body
        assert all(
            isinstance(node, ast.ImportFrom | ast.Expr)
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
            for node in body
        ), f"{module_id(path)} holds code"


def test_comments_state_rules_and_not_history() -> None:
    history = re.compile(
        r"#\s*(TODO|FIXME|XXX|HACK)|(issue|bug|PR)\s*#\d+|#\d{2,}\b", re.IGNORECASE
    )
    found = [
        f"{module_id(path)}: {line.strip()}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if history.search(line)
    ]

    assert not found


def test_no_file_names_a_place_on_one_machine() -> None:
    place = re.compile(r"(?<![A-Za-z0-9_./-])/(work|farm|root|home/[a-z]+)/")
    found = [
        module_id(path)
        for path in EVERYTHING
        if path != Path(__file__) and place.search(path.read_text())
    ]

    assert not found
