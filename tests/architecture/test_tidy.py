"""The shape of the code, held by a test where no linter holds it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
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
PARAMETERS_MAX = 7
SMALL_LINES = 60
# 260 for what 0.1.0 does, and the rooms of what came after it. Rules of rows: what they are, the
# order of rows, which changes win, remembered deletes, writes that follow them, and the removal of
# rows that expire. Tables in a bucket: slots, logs of slots, copies of files, and the outcome of an
# append, which may be under way beside others. Spark on buckets: pieces that workers read.
# Transactions: those of one table, the open ones, those over several tables with their decisions,
# their public form, and the checker of their histories.
# SQL: statements, their two readers, the database, relations, sessions, changes, definitions;
# datasets and their filters; the door in the catalog; the command and the shell.
# Other engines by name: guest tables, their metadata, snapshots of others, their rows, and the
# server: names, replies, commits, routes, tokens, HTTP. Adoption of guests, and definitions that
# come as Iceberg's documents.
# Pages of Parquet, whose headers the inspector and the readers of data files share; rows taken from
# many batches at once.
# SQL on Spark: the text of changes that engines share; attached lakes, the catalog, statements and
# changes.
MODULES_MAX = 323
DRAWER_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "data", "core"}
GENERATED = re.compile(r"_pb2\.pyi?$")
# Where a library of others may be imported: everything else asks these packages.
DOORS = {
    "click": {"cli", "inspect"},
    "rich": {"cli", "inspect"},
    "obstore": {"storage"},
    # The server has a catalog class that PyIceberg loads.
    "pyiceberg": {"iceberg", "server"},
    "google.protobuf": {"manifest"},
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "duckdb": {"sql"},
    "sqlglot": {"sql"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "hypothesis": {"testing"},
    "pytest": {"testing"},
    "moto": {"testing"},
    "boto3": {"testing"},
}
# The one module that may import a module of Python.
MODULE_DOORS = {"difflib": "model/suggestions.py"}
# Where modules of neve are loaded when they are first used.
LAZY_PLACES = {
    "__init__.py": "`import neve` takes a few hundredths of a second",
    "__main__.py": "Ctrl-C is answered before anything else is loaded",
    "cli/commands.py": "a command loads what it needs",
    "spark/__init__.py": "PySpark is an extra",
    "spark/source.py": "Spark sends this module to workers that only read",
    "storage/open_store.py": "a lake on a disk needs no client of clouds",
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def neve_path(path: Path) -> str:
    return str(path.relative_to(ROOT / "src" / "neve"))


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
        for node in functions(tree_of(path))
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]

    assert not long


@pytest.mark.parametrize("path", SOURCES, ids=module_id)
def test_neve_is_imported_at_the_top_and_never_behind_type_checking(path: Path) -> None:
    tree = tree_of(path)
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
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert not called & banned


def test_a_package_file_only_re_exports() -> None:
    for path in SOURCES:
        if path.name != "__init__.py" or neve_path(path) in LAZY_PLACES:
            continue
        body = tree_of(path).body
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


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules that a module imports, at once or later."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{name.name}" for name in names)}
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name))]):
                found.add(name)
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]
            ):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def package_of(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "neve").parts[0]


def test_modules_of_neve_are_loaded_later_in_few_places() -> None:
    places = {
        neve_path(path)
        for path in SOURCES
        if re.search(r'import_module\((?:"neve|module|home|lazy)', path.read_text())
    }

    assert places == set(LAZY_PLACES)


@pytest.mark.parametrize("library", DOORS)
def test_a_library_of_others_has_one_door(library: str) -> None:
    inside = {
        module_id(path)
        for path in SOURCES
        if package_of(path) not in DOORS[library]
        and any(f"{name}.".startswith(f"{library}.") for name in imported(path))
    }

    assert not inside


@pytest.mark.parametrize("library", MODULE_DOORS)
def test_a_module_of_python_has_one_door(library: str) -> None:
    inside = {neve_path(path) for path in SOURCES if library in imported(path)}

    assert inside == {MODULE_DOORS[library]}


def test_a_constructor_has_few_parameters() -> None:
    long = [
        f"{module_id(path)}: {owner.name} takes {count}"
        for path in SOURCES
        for owner in ast.walk(tree_of(path))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        if (count := len(node.args.args) - 1 + len(node.args.kwonlyargs)) > PARAMETERS_MAX
    ]

    assert not long


def test_a_small_module_has_more_than_one_importer() -> None:
    importers: dict[str, set[str]] = {}
    for path in SOURCES:
        for name in imported(path):
            importers.setdefault(name, set()).add(module_id(path))
    small = [
        module_id(path)
        for path in SOURCES
        if path.name not in {"__init__.py", "__main__.py"}
        and "DeprecationWarning" not in path.read_text()  # an old name, for one release
        and len(path.read_text().splitlines()) < SMALL_LINES
        and len(importers.get(".".join(path.relative_to(ROOT / "src").with_suffix("").parts), ()))
        < 2
    ]

    assert not small


def test_the_house_has_few_rooms() -> None:
    rooms = [path for path in SOURCES if path.name != "__init__.py"]

    assert len(rooms) <= MODULES_MAX
