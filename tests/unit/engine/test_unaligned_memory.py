"""Arrow expressions on memory that begins anywhere: rows that were imported, and replayed ones.

Arrow's own engine complains on standard error about memory that is not aligned.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import neve
from neve.storage.memory_store import MemoryStore
from tests.unit.engine.tables import a_catalog, a_table, rows

_COUNT = 100


def unaligned_rows() -> pa.Table:
    """Return rows whose numbers begin three bytes after where they should."""
    memory = np.zeros(8 * _COUNT + 3, np.uint8)
    memory[3:] = np.arange(_COUNT, dtype=np.int64).view(np.uint8)
    numbers = pa.Array.from_buffers(pa.int64(), _COUNT, [None, pa.py_buffer(memory.tobytes())[3:]])
    return pa.table({"id": numbers, "v": numbers, "text": ["t"] * _COUNT})


def count(table: neve.Table) -> int:
    return table.scan((pc.field("v") < 5) & (pc.field("text") == "t")).to_arrow().num_rows


def test_rows_that_were_imported_are_filtered_without_a_complaint(
    capfd: pytest.CaptureFixture[str],
) -> None:
    table = a_table(a_catalog())
    table.upsert(unaligned_rows())

    assert count(table) == 5
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", ["t", "tt", "t" * 7])
def test_rows_that_were_replayed_are_filtered_without_a_complaint(
    capfd: pytest.CaptureFixture[str], text: str
) -> None:
    objects = MemoryStore()
    with a_catalog(objects) as lake:
        table = a_table(lake)
        # What comes before moves what follows to another place of the log.
        table.put({"id": -1, "v": 9, "text": text})
        table.upsert(rows(0, _COUNT, v=1))

    with a_catalog(objects) as lake:
        assert count(lake.table("a.b", options=neve.TableOptions(background=False))) == _COUNT
    assert capfd.readouterr().err == ""
