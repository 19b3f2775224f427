"""Suites of others, run against the server: PyIceberg's own tests, and Iceberg's OpenAPI document.

Neither comes with a package, so both are named by the environment, and skipped without it:

    NEVE_PYICEBERG_TESTS   a checkout of apache/iceberg-python, of the version that is installed
    NEVE_REST_OPENAPI      open-api/rest-catalog-open-api.yaml of apache/iceberg

Both are under the Apache License 2.0, and are only read. PyIceberg's tests need the packages
pytest-lazy-fixtures, requests-mock, pytest-mock, thrift and sqlalchemy; the document needs
schemathesis.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import neve
from tests.integration.rest_requests import make_orders

PYICEBERG = os.environ.get("NEVE_PYICEBERG_TESTS", "")
OPENAPI = os.environ.get("NEVE_REST_OPENAPI", "")
SCHEMATHESIS = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or shutil.which(
    "schemathesis"
)
# The only ones that make a view, which a lake has not.
WITH_VIEWS = ("test_load_view[session_catalog]",)


def pyiceberg(arguments: list[str], url: str) -> str:
    """Run tests of PyIceberg; return their output."""
    environment = {
        **os.environ,
        "PYTHONPATH": PYICEBERG,
        "PYICEBERG_TEST_CATALOG": "neve",
        "PYICEBERG_CATALOG__NEVE__TYPE": "rest",
        "PYICEBERG_CATALOG__NEVE__URI": url,
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-W", "ignore", *arguments],
        cwd=PYICEBERG, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.skipif(not PYICEBERG, reason="NEVE_PYICEBERG_TESTS names no checkout")
def test_pyicebergs_tests_of_a_catalog_pass(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake, lake.serve() as server:
        output = pyiceberg(
            ["tests/integration/test_catalog.py", "-k", "rest_test_catalog"], server.url
        )

    assert re.search(r"\d+ passed", output), output
    assert not re.search(r"failed|error", output.splitlines()[-1]), output


@pytest.mark.skipif(not PYICEBERG, reason="NEVE_PYICEBERG_TESTS names no checkout")
def test_pyicebergs_tests_of_schemas_pass(tmp_path: Path) -> None:
    # They know one address: that of the server in Iceberg's own examples.
    with neve.open(tmp_path / "lake") as lake:
        lake.create_namespace("default")
        with lake.serve(port=8181) as server:
            skipped = [
                f"--deselect=tests/integration/test_rest_catalog.py::{n}" for n in WITH_VIEWS
            ]
            files = [f"tests/integration/test_rest_{name}.py" for name in ("catalog", "schema")]
            output = pyiceberg([*files, *skipped], server.url)

    assert re.search(r"\d+ passed", output), output
    assert not re.search(r"failed|error", output.splitlines()[-1]), output


def served_document() -> dict[str, Any]:
    """Return Iceberg's document for a server whose paths have no prefix.

    It names the schema of some errors of views without the envelope that its own examples have.
    """
    document = yaml.safe_load(Path(OPENAPI).read_text(encoding="utf-8"))
    prefix = {"$ref": "#/components/parameters/prefix"}
    paths: dict[str, Any] = {}
    for path, item in document["paths"].items():
        kept = [each for each in item.get("parameters", []) if each != prefix]
        paths[path.replace("/{prefix}", "")] = {**item, "parameters": kept}
    schemas = "#/components/schemas/"
    bare, whole = (
        json.dumps(f"{schemas}{each}") for each in ("ErrorModel", "IcebergErrorResponse")
    )
    corrected: dict[str, Any] = json.loads(json.dumps(paths).replace(bare, whole))
    return {**document, "paths": corrected}


@pytest.mark.skipif(not OPENAPI or SCHEMATHESIS is None, reason="no document or no schemathesis")
def test_requests_of_the_specification_are_answered_as_it_says(tmp_path: Path) -> None:
    document = tmp_path / "rest.json"
    document.write_text(json.dumps(served_document()))
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
    with neve.open(tmp_path / "lake") as lake, lake.serve() as server:
        make_orders(lake, "accounting.tax.sales").close()
        assert SCHEMATHESIS is not None
        done = subprocess.run(
            [SCHEMATHESIS, "run", str(document), "--url", server.url, "--seed", "1",
             "--checks", checks, "--phases", "examples,coverage,fuzzing", "--continue-on-failure",
             "--max-examples", os.environ.get("NEVE_REST_EXAMPLES", "10")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
