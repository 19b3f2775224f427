"""Builds the package, and tries it in an empty environment for each extra: `make package`.

1. Build the sdist, and the wheel from what the sdist holds, into dist/.
2. For each extra make an environment below .scratch/, install the wheel with that extra from the
   package registry, and run its smoke script there, with nothing of this shell's environment and
   without any Java of the machine.
3. Check a user's program with mypy against the base environment.
4. Install the oldest versions that pyproject.toml allows for neve and the extras that do work, and
   run their smoke scripts there again.

Reports what passed, how large environments are, and how long `import neve` takes.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neve.testing.s3_servers import locked_moto
from tests.integration.packaging.built_package import ROOT, build_sdist, build_wheel

DIST: Final = ROOT / "dist"
SCRATCH: Final = ROOT / ".scratch" / "package"
SCRIPTS: Final = Path(__file__).parent
BIN: Final = Path(sys.executable).parent
IMPORTS: Final = 7
OLDEST: Final = "oldest"
"""The environment with the lowest version of every dependency of neve and of these extras."""
OLDEST_EXTRAS: Final = ("s3", "sql", "server", "spark", "testing")


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment with neve and at most one extra."""

    name: str

    @property
    def folder(self) -> Path:
        """Where it is."""
        return SCRATCH / self.name

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    @property
    def byte_count(self) -> int:
        """Bytes of what is installed."""
        [packages] = self.folder.glob("lib/python3.*/site-packages")
        return sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())

    def make(self, wheel: Path) -> None:
        """Make the environment again, and install the wheel."""
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        if self.name == OLDEST:
            # What a wheel asks for counts as indirect, so the requirements are named themselves.
            extras = [f"--extra={extra}" for extra in OLDEST_EXTRAS]
            self._install(
                "--resolution=lowest-direct", "--requirement", ROOT / "pyproject.toml", *extras
            )
            self._install("--no-deps", wheel)
        else:
            extra = "" if self.name == "base" else f"[{self.name}]"
            self._install(f"neve{extra} @ {wheel.as_uri()}")

    def _install(self, *what: str | Path) -> None:
        uv: list[str | Path] = [BIN / "uv", "pip", "install", "--quiet", "--python", self.python]
        subprocess.run([*uv, *what], check=True)

    def run(self, *args: str | Path) -> None:
        """Run its Python with an environment of almost nothing."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        path = f"{self.folder / 'bin'}:{_programs_without_java()}"
        ran = subprocess.run(
            [self.python, "-I", *args],
            env={"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"},
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
        # Spark talks while it works; from all others a word is one too many.
        if ran.returncode or (ran.stderr and self.name not in {"spark", OLDEST}):
            sys.exit(f"neve[{self.name}]: {args[0]} failed\n{ran.stderr}")


def main() -> None:
    """Build, install and try everything; the first failure ends it."""
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    sdist = build_sdist(DIST)
    wheel = build_wheel(sdist, DIST, SCRATCH / "unpacked")
    for built in (sdist, wheel):
        _say(f"built {built.relative_to(ROOT)}", f"{built.stat().st_size / 1e6:.2f} MB")
    base = _installed("base", wheel, [["smoke_base.py"], ["smoke_without_extras.py"]])
    _check_types(base)
    _say("import neve", f"{_import_seconds(base) * 1000:.0f} ms more than Python alone")
    with locked_moto() as server:
        options = json.dumps(server.at.storage_options())
        s3 = ["smoke_s3.py", server.at.location("smoke"), options]
        _installed("s3", wheel, [s3])
        oldest = [
            ["smoke_base.py"], ["smoke_sql.py"], ["smoke_server.py"], ["smoke_testing.py"],
            ["smoke_spark.py"],
        ]  # fmt: skip
        s3_again = ["smoke_s3.py", server.at.location("smoke-again"), options]
        _installed(OLDEST, wheel, [*oldest, s3_again])
    _installed("sql", wheel, [["smoke_sql.py"]])
    _installed("server", wheel, [["smoke_server.py"]])
    _installed("testing", wheel, [["smoke_testing.py"]])
    _installed("spark", wheel, [["smoke_spark.py"]])
    # Nothing in neve uses it yet: that it installs is all there is to see.


def _installed(name: str, wheel: Path, scripts: Sequence[Sequence[str]]) -> Environment:
    environment = Environment(name)
    began_at = time.monotonic()
    environment.make(wheel)
    size = environment.byte_count / 1e6
    for script, *args in scripts:
        environment.run(SCRIPTS / script if script.endswith(".py") else script, *args)
    seconds = time.monotonic() - began_at
    _say(f"neve[{name}]", f"installed and tried in {seconds:.0f} s, {size:,.0f} MB")
    return environment


def _check_types(base: Environment) -> None:
    """Let mypy check a user's program by what is installed; pyarrow has no types to offer."""
    command: list[str | Path] = [
        BIN / "mypy",
        "--config-file=",
        "--strict",
        "--ignore-missing-imports",
    ]
    command += ["--python-executable", base.python, f"--cache-dir={SCRATCH / 'mypy'}"]
    program = SCRATCH / "typed_consumer.py"
    shutil.copy(SCRIPTS / program.name, program)
    subprocess.run([*command, program], cwd=SCRATCH, stdout=subprocess.DEVNULL, check=True)
    _say("py.typed", "mypy --strict sees the types of neve")


def _import_seconds(environment: Environment) -> float:
    """Seconds that `import neve` adds to a start of Python; the least of several."""
    return _least_seconds(environment, "import neve") - _least_seconds(environment, "pass")


def _least_seconds(environment: Environment, code: str) -> float:
    taken = []
    for _ in range(IMPORTS):
        began_at = time.monotonic()
        environment.run("-c", code)
        taken.append(time.monotonic() - began_at)
    return min(taken)


def _programs_without_java() -> Path:
    """Return a folder with the programs of the machine, but no Java."""
    folder = SCRATCH / "programs"
    if not folder.exists():
        folder.mkdir(parents=True)
        for program in Path("/usr/bin").iterdir():
            if not program.name.startswith("java"):
                (folder / program.name).symlink_to(program)
    return folder


def _say(what: str, words: str) -> None:
    print(f"{what:<36} {words}", flush=True)


if __name__ == "__main__":
    main()
