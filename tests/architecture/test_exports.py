"""The public surface: what `import neve` gives, how fast, and that the docs know it."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import neve
from neve import errors, spark

ROOT = Path(__file__).parents[2]


def test_every_error_is_importable_from_neve() -> None:
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.NeveError)
    }

    assert tree <= set(neve.__all__)


def test_the_surface_is_sorted_and_documented() -> None:
    reference = (ROOT / "docs" / "reference" / "index.md").read_text()

    assert list(neve.__all__) == sorted(neve.__all__)
    assert not [name for name in neve.__all__ if f"`{name}`" not in reference]


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
    assert inspect.signature(neve.open).return_annotation == "Catalog"


def test_the_error_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = errors.__doc__ or ""

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.NeveError):
            assert name in drawn


def test_importing_neve_loads_no_heavy_library() -> None:
    script = (
        "import sys, neve; "
        "print([m for m in ('pyspark', 'obstore', 'duckdb', 'pyiceberg', 'click', 'rich') "
        "if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
