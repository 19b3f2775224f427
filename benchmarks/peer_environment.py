"""Where the peers live: environments at the project's root, each made from its lock.

    .venv-peers      requirements-peers.lock      all but one
    .venv-pypaimon   requirements-pypaimon.lock   the one that asks for an older pyarrow

They have environments of their own because they ask for other versions of libraries than neve
does. One is ready when its stamp holds the digest of the lock; the stamp is written last, so a
half-made environment is never used. Without a network there is none, and its peers are left out.
"""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent
_INSTALL_SECONDS: Final = 900.0

PEERS: Final = "peers"
PYPAIMON: Final = "pypaimon"


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """An environment for peers, below a project's root."""

    root: Path = _ROOT
    name: str = PEERS

    @property
    def python(self) -> Path:
        """Interpreter that the peers run in."""
        return self._directory / "bin" / "python"

    def is_ready(self) -> bool:
        """Whether everything in the lock is installed."""
        try:
            # An interpreter that was moved away leaves a link to nowhere behind.
            return self.python.exists() and self._stamp.read_text() == self._digest()
        except FileNotFoundError:
            return False

    def prepare(self, say: Callable[[str], None]) -> bool:
        """Make it ready if it is not; says why and gives False when that cannot be done."""
        if self.is_ready():
            return True
        say(f"{self.name}: installing {self._lock.name} into {self._directory.name}")
        uv, lock = Path(sys.executable).with_name("uv"), str(self._lock)
        commands = (
            [sys.executable, "-m", "venv", "--without-pip", str(self._directory)],
            [str(uv), "pip", "sync", "--require-hashes", "--python", str(self.python), lock],
        )
        try:
            digest = self._digest()
            self._directory.mkdir(exist_ok=True)
            # The environment hides itself from version control.
            (self._directory / ".gitignore").write_text("*\n")
            for command in commands:
                subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=_INSTALL_SECONDS,
                )
        except (OSError, subprocess.SubprocessError) as error:
            say(f"{self.name}: left out, the environment could not be made: {_reason(error)}")
            return False
        self._stamp.write_text(digest)
        return True

    @property
    def _directory(self) -> Path:
        return self.root / f".venv-{self.name}"

    @property
    def _lock(self) -> Path:
        return self.root / f"requirements-{self.name}.lock"

    @property
    def _stamp(self) -> Path:
        return self._directory / ".ready"

    def _digest(self) -> str:
        return hashlib.sha256(self._lock.read_bytes()).hexdigest()


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return str(error.stderr).strip() or str(error)
    return str(error)
