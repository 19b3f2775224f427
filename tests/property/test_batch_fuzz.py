"""Batches damaged behind a right checksum: a typed error or a batch, never a crash."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pyarrow as pa

from neve.errors import NeveError
from neve.model.write_batch import (
    DeleteRow,
    DeleteRows,
    PartialRows,
    PutRow,
    UpsertRows,
    WriteBatch,
)
from neve.wal.batch_codec import decode_batch, encode_changes, frame_batch
from neve.wal.record_format import Dialect
from tests.gates import Gate
from tests.property.mutation import mutated

Record = Callable[[str], None]

ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2, 3]),
        "name": pa.array(["a", None, "c"]),
        "tags": pa.array([["x"], [], None]),
        "point": pa.array([{"x": 1.0}, None, {"x": 2.0}]),
    }
)
BATCHES = (
    WriteBatch((PutRow(b"key", b"value"), DeleteRow(b"gone"))),
    WriteBatch((UpsertRows(ROWS),), schema_version=300),
    WriteBatch((DeleteRows(ROWS.select(["id"])), PartialRows(ROWS, (1, 2)))),
)


def test_a_damaged_batch_is_a_typed_error_or_a_batch(scoreboard: Record) -> None:
    gate = Gate("R19 batch payloads, mutated: untyped errors", aim=200_000, full=10_000_000)
    payloads = [
        b"".join(frame_batch(encode_changes(batch), sequence=1, durable_through=0, nonce=5))
        for batch in BATCHES
    ]

    for seed in gate.seeds():
        rng = Random(seed)
        for payload in payloads:
            for _ in range(100):
                # Any other error than neve's own fails the test.
                with suppress(NeveError):
                    found = decode_batch(mutated(payload, rng), dialect=rng.choice(tuple(Dialect)))
                    assert found is not None
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases
