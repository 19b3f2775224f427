"""Rows to write: the same ones for every candidate, drawn from one seed.

    single row   8-byte key, 92-byte value                                       100 bytes
    batch row    id int64, name string (20 B), score float64, visits int32,
                 payload binary (100 B)                                          140 bytes

Ids are a random permutation, so that every row is a new key in no order. Key-value stores get a
batch row as an 8-byte key and a 132-byte value, put together beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.harness import SEED
from neve.keys.encoding import KeyEncoder

KEY_BYTES: Final = 8
VALUE_BYTES: Final = 92
ROW_BYTES: Final = KEY_BYTES + VALUE_BYTES
PAYLOAD_BYTES: Final = 100
NAME_BYTES: Final = 20
BATCH_ROW_BYTES: Final = 8 + NAME_BYTES + 8 + 4 + PAYLOAD_BYTES

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBatches:
    """The same rows in two forms."""

    table: pa.Table
    batches: Sequence[pa.RecordBatch]
    pairs: Sequence[Sequence[Row]]
    """Per batch, its rows as keys and values."""

    @property
    def row_count(self) -> int:
        """Rows in all batches."""
        return self.table.num_rows

    @property
    def logical_bytes(self) -> int:
        """Bytes of the values, without any framing."""
        return self.row_count * BATCH_ROW_BYTES


def sample_rows(count: int) -> list[Row]:
    """Make single rows: keys and values ready to be written."""
    generator = np.random.default_rng(SEED)
    keys = _keys(generator.permutation(count))
    values = _cut(generator.bytes(count * VALUE_BYTES), VALUE_BYTES)
    return list(zip(keys, values, strict=True))


def sample_batches(batch_count: int, batch_rows: int) -> SampleBatches:
    """Make batches of rows with five columns."""
    generator = np.random.default_rng(SEED)
    count = batch_count * batch_rows
    ids = generator.permutation(count)
    names = sample_names(count, generator)
    scores = generator.random(count)
    visits = generator.integers(0, 1_000, count, dtype=np.int32)
    payloads = generator.bytes(count * PAYLOAD_BYTES)
    table = pa.table(
        {
            "id": pa.array(ids),
            "name": pa.array(names),
            "score": pa.array(scores),
            "visits": pa.array(visits),
            "payload": pa.array(_cut(payloads, PAYLOAD_BYTES), pa.binary()),
        }
    )
    columns = ("".join(names).encode(), scores.tobytes(), visits.tobytes(), payloads)
    values = np.concatenate(
        [np.frombuffer(column, np.uint8).reshape(count, -1) for column in columns], axis=1
    )
    rows = list(zip(_keys(ids), _cut(values.tobytes(), values.shape[1]), strict=True))
    return SampleBatches(
        table=table,
        batches=table.to_batches(max_chunksize=batch_rows),
        pairs=[rows[at : at + batch_rows] for at in range(0, count, batch_rows)],
    )


def sample_names(count: int, generator: np.random.Generator) -> list[str]:
    """Make texts of NAME_BYTES bytes each."""
    return [f"customer-{digits}" for digits in generator.integers(10**10, 10**11, count).tolist()]


def _keys(ids: npt.NDArray[np.int64]) -> list[bytes]:
    encode = KeyEncoder([pa.int64()], ["id"]).encode
    return [encode((number,)) for number in ids.tolist()]


def _cut(whole: bytes, width: int) -> list[bytes]:
    return [whole[at : at + width] for at in range(0, len(whole), width)]
