"""`encode_keys`: key columns to key bytes, whole columns at once and row by row.

Three keys: an int64, a string, and both. For each, four ways:

    whole columns   KeyEncoder.encode_arrays, with its checks
    row by row      KeyEncoder.encode, with its checks, on a tenth of the rows
    Python loop     the shortest loop that gives the same bytes, no checks, on a tenth of the rows
    bare pass       NumPy and Arrow calls that give the same bytes for this sample, no checks

Ways that take Python values get them ready made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import SEED, Candidate, Kind, Outcome, Ratio, Scale, Stopwatch, Workload
from benchmarks.sample_rows import NAME_BYTES, sample_names
from neve.keys.columns import ArrowArray
from neve.keys.encoding import KeyEncoder

_PASSES: Final = 5
_SIGN: Final = np.int64(-(2**63))
_SAMPLE_SHARE: Final = 10
_ID_BYTES: Final = 8

EncodeColumns = Callable[[Sequence[ArrowArray]], ArrowArray]
EncodeSample = Callable[[], list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """One kind of key with its sample."""

    name: str
    columns: Sequence[ArrowArray]
    row_bytes: int
    bare: EncodeColumns
    loop: EncodeSample
    encoder: KeyEncoder
    rows: Sequence[tuple[object, ...]]
    """The first rows as Python values."""


def build_encode_keys(scale: Scale, _directory: Path) -> Workload:
    """Whole columns of keys, and single ones."""
    keys = _keys(scale.keys)
    return Workload(
        name="encode_keys",
        sentence="Key columns to order-preserving key bytes.",
        unit="keys",
        candidates=[candidate for key in keys for candidate in _candidates(key)],
        ratios=[
            Ratio(of=f"{key.name}: whole columns", to=f"{key.name}: {way}")
            for key in keys
            for way in ("Python loop", "bare pass")
        ],
        parameters={
            "keys": scale.keys,
            "keys_row_by_row": scale.keys // _SAMPLE_SHARE,
            "passes": _PASSES,
            "text_bytes": NAME_BYTES,
            "threads": 1,
            "seed": SEED,
        },
        notes=("`bare pass` and `Python loop` check nothing: no NULL, NUL byte, length or type.",),
        uses_disk=False,
    )


def _keys(count: int) -> Sequence[_Key]:
    generator = np.random.default_rng(SEED)
    numbers = generator.integers(-(2**62), 2**62, count)
    texts = sample_names(count, generator)
    ids, names = pa.array(numbers), pa.array(texts)
    sample_count = max(count // _SAMPLE_SHARE, 1)
    first_ids: list[int] = numbers[:sample_count].tolist()
    first_names = texts[:sample_count]
    return (
        _Key(
            name="int64",
            columns=[ids],
            row_bytes=_ID_BYTES,
            bare=_bare_ids,
            loop=lambda: [(number + 2**63).to_bytes(8, "big") for number in first_ids],
            encoder=KeyEncoder([pa.int64()], ["id"]),
            rows=[(number,) for number in first_ids],
        ),
        _Key(
            name="string",
            columns=[names],
            row_bytes=NAME_BYTES,
            bare=_bare_names,
            loop=lambda: [name.encode() + b"\x00\x00" for name in first_names],
            encoder=KeyEncoder([pa.string()], ["name"]),
            rows=[(name,) for name in first_names],
        ),
        _Key(
            name="int64, string",
            columns=[ids, names],
            row_bytes=_ID_BYTES + NAME_BYTES,
            bare=_bare_both,
            loop=lambda: [
                (number + 2**63).to_bytes(8, "big") + name.encode() + b"\x00\x00"
                for number, name in zip(first_ids, first_names, strict=True)
            ],
            encoder=KeyEncoder([pa.int64(), pa.string()], ["id", "name"]),
            rows=list(zip(first_ids, first_names, strict=True)),
        ),
    )


def _candidates(key: _Key) -> Sequence[Candidate]:
    return (
        Candidate(
            name=f"{key.name}: whole columns",
            kind=Kind.NEVE,
            trial=lambda _directory, stopwatch: _whole_columns(key, stopwatch),
        ),
        Candidate(
            name=f"{key.name}: row by row",
            kind=Kind.NEVE,
            trial=lambda _directory, stopwatch: _row_by_row(key, stopwatch),
        ),
        Candidate(
            name=f"{key.name}: Python loop",
            kind=Kind.PEER,
            trial=lambda _directory, stopwatch: _python_loop(key, stopwatch),
        ),
        Candidate(
            name=f"{key.name}: bare pass",
            kind=Kind.LIMIT,
            trial=lambda _directory, stopwatch: _bare_pass(key, stopwatch),
        ),
    )


def _whole_columns(key: _Key, stopwatch: Stopwatch) -> Outcome:
    with stopwatch:
        for _ in range(_PASSES):
            encoded = key.encoder.encode_arrays(key.columns)
    sample = encoded.slice(0, len(key.rows)).to_pylist()
    return _outcome(
        key,
        _PASSES * len(encoded),
        calls=_PASSES,
        answer=(sample, key.encoder.decode_arrays(encoded)),
        expected=(key.loop(), list(key.columns)),
    )


def _row_by_row(key: _Key, stopwatch: Stopwatch) -> Outcome:
    encode = key.encoder.encode
    with stopwatch:
        encoded = [encode(row) for row in key.rows]
    expected = key.loop()
    return _outcome(key, len(encoded), calls=len(encoded), answer=encoded, expected=expected)


def _python_loop(key: _Key, stopwatch: Stopwatch) -> Outcome:
    with stopwatch:
        encoded = key.loop()
    expected = [key.encoder.encode(row) for row in key.rows]
    return _outcome(key, len(encoded), calls=1, answer=encoded, expected=expected)


def _bare_pass(key: _Key, stopwatch: Stopwatch) -> Outcome:
    with stopwatch:
        for _ in range(_PASSES):
            encoded = key.bare(key.columns)
    expected = key.encoder.encode_arrays(key.columns)
    return _outcome(
        key,
        _PASSES * len(encoded),
        calls=_PASSES,
        answer=encoded,
        expected=expected,
    )


def _outcome(key: _Key, rows: int, *, calls: int, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=rows,
        calls=calls,
        logical_bytes=rows * key.row_bytes,
        answer=answer,
        expected=expected,
    )


def _bare_ids(columns: Sequence[ArrowArray]) -> ArrowArray:
    flipped = (columns[0].to_numpy() ^ _SIGN).astype(">i8")
    return pa.Array.from_buffers(
        pa.binary(_ID_BYTES), len(flipped), [None, pa.py_buffer(flipped.data)]
    )


def _bare_names(columns: Sequence[ArrowArray]) -> ArrowArray:
    return _joined(columns[0].cast(pa.binary()), pa.scalar(b"\x00\x00"))


def _bare_both(columns: Sequence[ArrowArray]) -> ArrowArray:
    ids = _bare_ids(columns).cast(pa.binary())
    return _joined(ids, columns[1].cast(pa.binary()), pa.scalar(b"\x00\x00"))


def _joined(*pieces: "ArrowArray | pa.Scalar[pa.DataType]") -> ArrowArray:
    # The stubs want all pieces to be of one kind; Arrow repeats scalars.
    joined: ArrowArray = pc.binary_join_element_wise(*pieces, pa.scalar(b""))  # type: ignore[type-var, assignment]
    return joined
