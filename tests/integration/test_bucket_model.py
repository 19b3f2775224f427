"""Random histories of a table on S3, with faults of the server, agree with a model (R12)."""

from collections.abc import Sequence

import pytest

import neve
from neve.catalog.lake import Lake
from neve.testing.faulty_store import PlannedFault
from neve.testing.s3_servers import MotoServer, S3Endpoint
from tests.conftest import Record
from tests.crash.test_bucket_faults import Calls, World, run_history
from tests.gates import Gate

pytestmark = pytest.mark.s3


class ServerWorld(World):
    """A world whose bucket is on a server; a planned fault is one of HTTP."""

    def __init__(self, seed: int, moto: MotoServer, location: str) -> None:
        super().__init__(seed)
        self._moto = moto
        self._location = location

    def opened(self, faults: Sequence[PlannedFault]) -> tuple[Lake, Calls]:
        options = self._moto.at.storage_options(timeout_seconds="0.5", patience_seconds="5")
        self._moto.application.follow(faults)
        return neve.open(self._location, storage_options=options), self._moto.application


def test_histories_with_faults_of_the_server_agree_with_the_model(
    moto: MotoServer, prefix: str, scoreboard: Record
) -> None:
    gate = Gate("R12 histories on S3 with faults, against the model", 20, 2_000)
    for seed in gate.seeds():
        world = ServerWorld(seed, moto, moto.at.location(f"{prefix}/{seed}"))
        gate.cases += 1
        gate.violations += run_history(seed, world)
        assert gate.violations == 0, seed
    scoreboard(gate.line())


class SeaweedWorld(World):
    """A world whose bucket is on SeaweedFS; its writers end without a good ending, if at all."""

    def __init__(self, seed: int, at: S3Endpoint, location: str) -> None:
        super().__init__(seed)
        self._at = at
        self._location = location

    def opened(self, faults: Sequence[PlannedFault]) -> tuple[Lake, Calls]:
        del faults
        options = self._at.storage_options(listing="unordered")
        return neve.open(self._location, storage_options=options), _NO_CALLS


class _NoCalls:
    calls = ()


_NO_CALLS = _NoCalls()


def test_histories_on_seaweedfs_agree_with_the_model(
    seaweed: S3Endpoint, prefix: str, scoreboard: Record
) -> None:
    gate = Gate("R12 histories on SeaweedFS, against the model", 20, 2_000)
    for seed in gate.seeds():
        world = SeaweedWorld(seed, seaweed, seaweed.location(f"{prefix}/{seed}"))
        gate.cases += 1
        gate.violations += run_history(seed, world)
        assert gate.violations == 0, seed
    scoreboard(gate.line())
