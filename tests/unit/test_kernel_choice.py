"""Whether the compiled kernel is used: by what was built, and by NEVE_KERNEL."""

import os
import subprocess
import sys
from typing import Final

import pytest

from neve.kernel import is_compiled

WORK: Final = """
import neve, pyarrow as pa
from neve.kernel import is_compiled
schema = pa.schema({"id": pa.int64(), "text": pa.string()})
with neve.open("memory://lake") as lake:
    options = neve.TableOptions(background=False)
    table = lake.create_table("a.b", schema=schema, primary_key=["id"], options=options)
    for id in range(20):
        table.put({"id": id, "text": "x" * id})
    for _ in range(2):
        print(table.get(7), table.get(99), table.get_many([9, 3, 99]).to_pylist())
        table.flush()
print(is_compiled)
"""
STALE: Final = """
import sys, types
sys.modules["neve._kernel"] = types.ModuleType("neve._kernel")
"""


def run(code: str, **variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NEVE_KERNEL"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize(
    ("before", "variables", "is_used"),
    [("", {}, is_compiled), ("", {"NEVE_KERNEL": "0"}, False), (STALE, {}, False)],
    ids=["as it is", "turned off", "of another revision"],
)
def test_a_table_answers_the_same_with_the_kernel_and_without(
    before: str, variables: dict[str, str], is_used: bool
) -> None:
    *answers, used = run(before + WORK, **variables)

    row, rows = {"id": 7, "text": "x" * 7}, [{"id": 9, "text": "x" * 9}, {"id": 3, "text": "xxx"}]
    assert answers == [f"{row} None {rows}"] * 2
    if "NEVE_KERNEL" not in os.environ or is_used is False:
        assert used == str(is_used)
