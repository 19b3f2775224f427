"""Everything works over Spark Connect, where there is no context and no Java in this process."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_pipeline_over_connect_gives_what_the_engine_gives(tmp_path: Path) -> None:
    # The server has the same standard error, and this waits for the end of it: none is left.
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_session", str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stderr[-3_000:].decode()
