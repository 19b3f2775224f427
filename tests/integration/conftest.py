"""S3 servers that integration tests share; each test gets a prefix of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from neve.testing.s3_servers import MotoServer, S3Endpoint, locked_moto, seaweedfs


@pytest.fixture(scope="session")
def running_moto() -> Iterator[MotoServer]:
    """Yield one moto for the whole run."""
    with locked_moto() as server:
        yield server


@pytest.fixture
def moto(running_moto: MotoServer) -> MotoServer:
    """Return the shared moto without faults and with an empty record."""
    running_moto.application.follow([])
    return running_moto


@pytest.fixture(scope="session")
def seaweed() -> Iterator[S3Endpoint]:
    """Yield one SeaweedFS for the whole run."""
    with seaweedfs() as at:
        yield at


@pytest.fixture
def prefix() -> str:
    """Return a part of a bucket that no other test uses."""
    return f"tests/{uuid4()}"
