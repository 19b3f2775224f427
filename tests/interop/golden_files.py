"""Golden files that Apache Iceberg's own tests read, kept beside the checkout."""

from pathlib import Path

import pytest

GOLDENS = Path(__file__).parents[3] / "shared" / "goldens" / "iceberg"


def golden(name: str) -> bytes:
    """Give the bytes of a golden file; skips the test where there are none."""
    if not GOLDENS.is_dir():
        pytest.skip("the golden files of Apache Iceberg are not beside this checkout")
    return (GOLDENS / name).read_bytes()
