"""The demo as a whole, with Spark: its pipeline beside a live writer, and every claim checked."""

import json
import subprocess
import sys
from pathlib import Path

NEVE = (sys.executable, "-c", "from neve.cli.main import main; main()")
SECONDS = 300


def test_the_demo_runs_its_pipeline_on_spark_beside_a_live_writer(tmp_path: Path) -> None:
    finished = subprocess.run(
        [*NEVE, "demo", "--json", "--lake", str(tmp_path / "lake")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    acts = {act["name"]: act["findings"] for act in json.loads(finished.stdout)["acts"]}
    assert acts["spark"]["spark_is_installed"]
    assert acts["spark"]["live_rows"] > 0
    for step in ("load", "upsert", "merge", "stream", "compact"):
        assert acts["spark"][f"spark_{step}_seconds"] > 0
