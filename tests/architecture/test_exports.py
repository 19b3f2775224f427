"""The public surface: what `import neve` gives, how fast, and that the docs know it."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import neve
from neve import errors, spark
from neve.catalog import kv_catalog
from neve.engine.table_options import PublishMode
from neve.kernel import is_compiled
from neve.wal.log_options import SyncPolicy
from neve.wal.replay import RecoveryMode

ROOT = Path(__file__).parents[2]


def test_every_error_is_importable_from_neve() -> None:
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.NeveError)
    }

    assert tree <= set(neve.__all__)


def test_the_surface_is_sorted_and_the_reference_has_just_these_names() -> None:
    reference = (ROOT / "docs" / "reference" / "index.md").read_text()
    section = reference.partition("## Public names of `neve`")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert list(neve.__all__) == sorted(neve.__all__)
    assert sorted(named) == list(neve.__all__)


def test_the_stub_has_the_names_that_the_package_has() -> None:
    stub = ast.parse((ROOT / "src" / "neve" / "__init__.pyi").read_text())
    listed = next(
        ast.literal_eval(node.value)
        for node in stub.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )

    assert listed == list(neve.__all__)
    assert all(getattr(neve, name) is not None for name in neve.__all__)


def test_completion_shows_what_programs_use_and_nothing_else() -> None:
    assert {name for name in dir(neve) if not name.startswith("_")} == {
        name for name in neve.__all__ if not name.startswith("_")
    }


TABLE_SURFACE = {
    "writing": "put upsert apply last_batch put_if_absent compare_and_put delete delete_many "
    "delete_where transaction",
    "reading": "get get_many scan snapshot at changes follow dataset sql",
    "history": "history files stats leases consumers drop_consumer tag remove_tag rollback",
    "definition": "evolve set_properties iceberg_metadata name table_id uuid location properties "
    "format_version retention version schema primary_key spec sort_order",
    "maintenance": "flush compact expire collect_garbage verify recovery refresh close",
}
LAKE_SURFACE = {
    "namespaces": "list_namespaces namespace_properties create_namespace drop_namespace "
    "set_namespace_properties",
    "tables": "list_tables table_exists table load_table table_meta create_table register_table "
    "rename_table drop_table purge_table bulk transaction retry",
    "SQL": "sql sql_session",
    "other engines": "guests register adopt serve",
    "everything": "location requests system_table recover close",
}
FORMER_NAMES = (
    "commit current engine meta publish_committed published_lineage schemas specs stored "
    "update_definition update_partition_spec update_schema update_sort_order"
)


def public_names(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_a_table_and_a_lake_show_what_programs_use_and_nothing_else() -> None:
    with neve.open("memory://surface") as lake:
        table = lake.create_table("a.b", {"id": "long"}, primary_key="id")

        assert public_names(table) == set(" ".join(TABLE_SURFACE.values()).split())
        assert public_names(lake) == set(" ".join(LAKE_SURFACE.values()).split())


def test_what_a_table_showed_in_the_first_release_still_answers_with_a_warning() -> None:
    with neve.open("memory://former") as lake:
        table = lake.create_table("a.b", {"id": "long"}, primary_key="id")
        for name in FORMER_NAMES.split():
            with pytest.warns(DeprecationWarning, match=f"Table.{name} is internal"):
                assert getattr(table, name) is not None
        with pytest.raises(AttributeError, match="no attribute 'stord'"):
            getattr(table, "stord")  # noqa: B009 - type checkers know that it is missing


def test_the_catalog_of_the_first_release_is_the_lake() -> None:
    assert neve.Catalog is neve.Lake
    with pytest.warns(DeprecationWarning, match=r"neve\.Lake"):
        assert kv_catalog.KVCatalog is neve.Lake


def test_the_version_is_that_of_the_package() -> None:
    assert neve.__version__ == metadata.version("neve")


def test_the_version_of_sources_that_were_never_installed_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nowhere)

    assert neve.__version__ == "0+unknown"


def test_the_package_runs_as_a_program() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "neve", "--version"], capture_output=True, text=True, check=True
    )

    with_or_without = "with" if is_compiled else "without"
    assert ran.stdout == f"neve {neve.__version__} ({with_or_without} the compiled kernel)\n"


def test_the_options_of_a_table_name_their_values_to_type_checkers() -> None:
    hints = get_type_hints(neve.TableOptions)
    for option, kind in {
        "sync": SyncPolicy,
        "recovery": RecoveryMode,
        "iceberg_publish": PublishMode,
    }.items():
        _, spelled = get_args(hints[option])
        assert set(get_args(spelled)) == {str(each) for each in kind}


def test_every_name_for_spark_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "spark.md").read_text()
    rendered = re.findall(r"^::: neve\.spark\.\w+\.(\w+)$", reference, re.MULTILINE)

    assert spark.__all__
    assert not set(spark.__all__) ^ set(rendered)


def test_completion_offers_every_name_before_it_is_loaded() -> None:
    script = "import neve; from neve import spark; print(*dir(neve), *dir(spark))"

    offered = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert {*neve.__all__, *spark.__all__} <= set(offered.stdout.split())


def test_help_says_what_open_gives() -> None:
    assert inspect.signature(neve.open).return_annotation == "Lake"


def test_the_error_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = errors.__doc__ or ""

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.NeveError):
            assert name in drawn


def test_importing_neve_loads_no_heavy_library() -> None:
    script = (
        "import sys, neve; "
        "print([m for m in ('pyarrow', 'numpy', 'importlib.metadata', 'pyspark', 'obstore', "
        "'duckdb', 'pyiceberg', 'click', 'rich') "
        "if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
