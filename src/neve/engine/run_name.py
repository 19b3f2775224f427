"""RunName: the name of one run of a job, which is in the path of every file of the run.

    data/<run>/<partition path>/<run><random>.parquet
    index/<run><random>.index
    deletes/<run><random>.puffin

So the names can be announced before the first file is written, and files that a run left behind can
be found. A repeated run has another name: no file is ever written twice.
"""

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from neve.storage.clock import IdSource
from neve.storage.table_paths import join_path
from neve.table.partitions import Partition

_RUN_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class RunName:
    """The name of one run of a job: 16 hexadecimal digits that no other run has."""

    digits: str

    @classmethod
    def drawn(cls, ids: IdSource) -> "RunName":
        """Draw a name from the random digits of a UUID."""
        return cls(f"{ids.uuid().hex[:8]}{ids.uuid().hex[:8]}")

    @property
    def data_prefix(self) -> str:
        """Prefix of the paths of its data files."""
        return f"data/{self.digits}/"

    @property
    def vector_prefix(self) -> str:
        """Prefix of the paths of its vectors."""
        return f"deletes/{self.digits}"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of the paths of all its files."""
        return self.data_prefix, self.vector_prefix, f"index/{self.digits}"

    def placed(self, partition: Partition) -> Partition:
        """Return a partition whose directory is inside the run's."""
        return replace(partition, path=join_path(self.digits, partition.path).rstrip("/"))


class RunIds:
    """Identifiers that begin with the name of a run."""

    def __init__(self, run: RunName, ids: IdSource) -> None:
        self._run = run
        self._ids = ids

    def uuid(self) -> UUID:
        """Make a unique identifier."""
        return UUID(hex=f"{self._run.digits}{self._ids.uuid().hex[-_RUN_DIGITS:]}")

    def jitter(self) -> float:
        """Draw a number in [0, 1) for back-off."""
        return self._ids.jitter()

    def process(self) -> str:
        """Name this process for people."""
        return self._ids.process()
