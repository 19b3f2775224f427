"""What an environment without extras says to somebody who needs one: which to install."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import neve
from neve import spark

NEVE = Path(sys.executable).with_name("neve")


def main() -> None:
    """Ask for what only an extra brings; play the demo, which does without."""
    for extra, call in (("s3", _open_a_bucket), ("spark", _start_spark)):
        hint = _hint_of(call)
        assert f"pip install 'neve[{extra}]'" in hint, hint
    played = subprocess.run([NEVE, "demo"], capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in played
    for extra in ("sql", "spark"):
        assert f"pip install 'neve[{extra}]'" in played, played


def _open_a_bucket() -> None:
    neve.open("s3://bucket/lake", storage_options={"region": "none"})


def _start_spark() -> None:
    spark.session()


def _hint_of(call: Callable[[], None]) -> str:
    try:
        call()
    except neve.Unavailable as error:
        return error.hint or ""
    return "nothing is missing"


if __name__ == "__main__":
    main()
