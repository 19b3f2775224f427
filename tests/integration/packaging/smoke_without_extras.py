"""An environment without extras says which one to install, and where the demo is."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import neve
from neve import spark

NEVE = Path(sys.executable).with_name("neve")
DEMO = Path(__file__).parents[3] / "examples" / "demo"


def main() -> None:
    """Ask for what only an extra brings, and for the demo; then play it from the sources."""
    for extra, call in (("s3", _open_a_bucket), ("spark", _start_spark), ("sql", _run_sql)):
        hint = _hint_of(call)
        assert f"pip install 'neve[{extra}]'" in hint, hint
    asked = subprocess.run([NEVE, "demo"], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert "`python examples/demo`" in asked.stderr, asked.stderr
    played = subprocess.run(
        [sys.executable, DEMO], capture_output=True, text=True, check=True
    ).stdout
    assert "\x1b" not in played
    for extra in ("sql", "spark"):
        assert f"pip install 'neve[{extra}]'" in played, played


def _open_a_bucket() -> None:
    neve.open("s3://bucket/lake", storage_options={"region": "none"})


def _start_spark() -> None:
    spark.session()


def _run_sql() -> None:
    with neve.open("memory://lake") as lake:
        lake.sql("show tables")


def _hint_of(call: Callable[[], None]) -> str:
    try:
        call()
    except neve.Unavailable as error:
        return error.hint or ""
    return "nothing is missing"


if __name__ == "__main__":
    main()
