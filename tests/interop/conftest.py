"""What several interop tests start: one JVM with Java Iceberg."""

from collections.abc import Iterator

import pytest

from tests.interop.java_iceberg import JavaIceberg, find_jar, open_java_iceberg


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaIceberg]:
    """Start Java Iceberg; the JVM ends with the tests."""
    with open_java_iceberg(find_jar(), tmp_path_factory.mktemp("java")) as iceberg:
        yield iceberg
