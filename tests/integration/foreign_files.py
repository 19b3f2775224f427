"""Odd files that others could have written, made here from seeds: nothing of them is copied.

    python -m tests.integration.foreign_files DIRECTORY

Parquet files of every encoding, codec and type, encrypted ones, and such whose footers lie; Arrow,
CSV and JSON files that are cut off, too large when unpacked, or not what their name says.
"""

import gzip
import io
import struct
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

Tree: TypeAlias = Any
"""A Thrift value: (kind, value), fields of structs and elements of lists inside."""

MAGIC = b"PAR1"
LONG_TEXT = 1 << 20
ROWS = pa.table(
    {
        "id": pa.array(range(500), pa.int64()),
        "name": [f"name {n % 7}" if n % 5 else None for n in range(500)],
        "price": [n / 4 for n in range(500)],
        "day": pa.array(range(500), pa.date32()),
    }
)


# Thrift in the compact form, as trees


def read_thrift(content: bytes) -> Tree:
    """Read a struct."""
    return _read(io.BytesIO(content), 12)


def write_thrift(tree: Tree) -> bytes:
    """Write a struct."""
    return _written(tree)


def _varint(stream: io.BytesIO) -> int:
    result = shift = 0
    while True:
        byte = stream.read(1)[0]
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result


def _read(stream: io.BytesIO, kind: int) -> Tree:
    if kind in {1, 2}:
        return (kind, None)
    if kind == 3:
        return (kind, stream.read(1)[0])
    if kind in {4, 5, 6}:
        number = _varint(stream)
        return (kind, (number >> 1) ^ -(number & 1))
    if kind == 7:
        return (kind, stream.read(8))
    if kind == 8:
        return (kind, stream.read(_varint(stream)))
    if kind == 9:
        head = stream.read(1)[0]
        count = _varint(stream) if head >> 4 == 15 else head >> 4
        return (kind, (head & 15, [_read(stream, head & 15) for _ in range(count)]))
    assert kind == 12
    fields: dict[int, Tree] = {}
    field = 0
    while head := stream.read(1)[0]:
        field += head >> 4
        fields[field] = _read(stream, head & 15)
    return (kind, fields)


def _varint_bytes(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _written(tree: Tree) -> bytes:
    kind, value = tree
    match kind:
        case 1 | 2:
            return b""
        case 3:
            return bytes([value])
        case 4 | 5 | 6:
            return _varint_bytes((value << 1 ^ value >> 63) & ((1 << 64) - 1))
        case 7:
            return bytes(value)
        case 8:
            return _varint_bytes(len(value)) + bytes(value)
        case 9:
            element, items = value
            return (
                bytes([0xF0 | element]) + _varint_bytes(len(items)) + b"".join(map(_written, items))
            )
        case _:
            out, last = b"", 0
            for field, inside in sorted(value.items()):
                out += bytes([(field - last) << 4 | inside[0]]) + _written(inside)
                last = field
            return out + b"\0"


def with_footer(content: bytes, change: Callable[[dict[int, Tree]], object]) -> bytes:
    """Change the footer of a Parquet file."""
    length = int.from_bytes(content[-8:-4], "little")
    tree = read_thrift(content[-8 - length : -8])
    change(tree[1])
    footer = write_thrift(tree)
    return content[: -8 - length] + footer + struct.pack("<I", len(footer)) + MAGIC


def parquet(table: pa.Table = ROWS, **options: Any) -> bytes:  # noqa: ANN401 - of pyarrow
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


# Parquet


def whole_parquet() -> Iterator[tuple[str, bytes]]:
    """Return files that are right, though rare."""
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        yield f"codec-{codec}", parquet(compression=codec)
    encodings = {
        "PLAIN": ("id", "name", "price"),
        "DELTA_BINARY_PACKED": ("id",),
        "DELTA_LENGTH_BYTE_ARRAY": ("name",),
        "DELTA_BYTE_ARRAY": ("name",),
        "BYTE_STREAM_SPLIT": ("id", "price"),
    }
    for encoding, columns in encodings.items():
        yield (
            f"encoding-{encoding}",
            parquet(use_dictionary=False, column_encoding=dict.fromkeys(columns, encoding)),
        )
    yield "encoding-RLE_DICTIONARY", parquet(use_dictionary=True)
    flags = pa.table({"id": range(100), "flag": [n % 3 == 0 for n in range(100)]})
    yield (
        "encoding-RLE",
        parquet(
            flags, use_dictionary=False, column_encoding={"flag": "RLE"}, data_page_version="2.0"
        ),
    )
    yield "page-v2", parquet(data_page_version="2.0", compression="zstd")
    yield "page-index", parquet(write_page_index=True, row_group_size=50)
    yield "no-statistics", parquet(write_statistics=False)
    yield "small-pages", parquet(data_page_size=64, write_page_checksum=True)
    times = pa.table({"id": [1, 2], "ts": pa.array([0, 1], pa.timestamp("ns"))})
    yield "int96", parquet(times, use_deprecated_int96_timestamps=True)
    yield "zero-rows", parquet(ROWS.slice(0, 0))
    yield "zero-columns", parquet(pa.table({}))
    yield "metadata-not-utf8", parquet(ROWS.replace_schema_metadata({b"\xff\xfe": b"\xff\x00"}))
    yield "old-lists", parquet(_nested(), use_compliant_nested_type=False)
    yield "nested", parquet(_nested())
    yield "types", parquet(_types(), store_decimal_as_integer=False)
    yield "decimals-as-integers", parquet(_types(), store_decimal_as_integer=True)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], names=["id", "id"])
    yield "name-twice", parquet(twice)
    dotted = pa.table({"id": [1], "a.b": [2], "": [3], "\n\x1b[31m": [4]})
    yield "odd-names", parquet(dotted)
    yield "many-groups", parquet(row_group_size=1)
    yield "many-columns", parquet(pa.table({f"c{at}": [at] for at in range(2_000)}))
    # What cannot be decoded in some memory: a text of a megabyte, named 3,000 times.
    often = pa.DictionaryArray.from_arrays(np.zeros(3_000, np.int32), pa.array(["x" * LONG_TEXT]))
    long = pa.table({"id": range(3_000), "text": often})
    yield "one-text-often", parquet(long, compression="zstd", write_statistics=False)


def _nested() -> pa.Table:
    return pa.table(
        {
            "id": [1, 2, 3],
            "lists": pa.array([[[1], []], None, [[2, 3], None]]),
            "map": pa.array(
                [[("a", {"x": 1})], [], None],
                pa.map_(pa.string(), pa.struct([("x", pa.int64())])),
            ),
            "deep": pa.array([{"a": {"b": [{"c": 1}]}}, None, {"a": None}]),
        }
    )


def _types() -> pa.Table:
    numbers = {
        f"u{bits}": pa.array([0, (1 << bits) - 1], getattr(pa, f"uint{bits}")())
        for bits in (8, 16, 32, 64)
    }
    decimals = {
        f"d{digits}": pa.array([Decimal(1), None], pa.decimal128(digits, 2))
        for digits in (5, 15, 38)
    }
    return pa.table(
        {
            "id": [1, 2],
            **numbers,
            **decimals,
            "d76": pa.array([Decimal(1), None], pa.decimal256(76, 2)),
            "half": pa.array(np.array([1, 2], np.float16)),
            "time": pa.array([1, 2], pa.time32("ms")),
            "duration": pa.array([1, 2], pa.duration("s")),
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
            "null": pa.nulls(2),
            "large": pa.array(["a", None], pa.large_string()),
            "dictionary": pa.array(["a", "a"]).dictionary_encode(),
        }
    )


class _Kms(pe.KmsClient):
    """Keeps keys by not hiding them."""

    def wrap_key(  # type: ignore[override]  # bytes, whatever the stubs say
        self, key_bytes: bytes, master_key_identifier: str
    ) -> bytes:
        return master_key_identifier.encode() + b":" + key_bytes.hex().encode()

    def unwrap_key(  # type: ignore[override]  # bytes, whatever the stubs say
        self, wrapped_key: bytes, master_key_identifier: str
    ) -> bytes:
        del master_key_identifier
        return bytes.fromhex(wrapped_key.split(b":")[1].decode())


def encrypted_parquet() -> Iterator[tuple[str, bytes]]:
    """Return files whose keys nobody has."""
    factory = pe.CryptoFactory(lambda _: _Kms())
    for name, plain_footer in (("footer", False), ("columns", True)):
        settings = pe.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["name", "price"]}, plaintext_footer=plain_footer
        )
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
        yield f"encrypted-{name}", parquet(encryption_properties=properties)


def lying_parquet() -> Iterator[tuple[str, bytes]]:
    """Return files whose footers or headers say what is not so."""
    whole = parquet(compression="zstd")

    def said(
        name: str, change: Callable[[dict[int, Tree], int], object], number: int = 0
    ) -> tuple[str, bytes]:
        return f"lie-{name}", with_footer(whole, lambda footer: change(footer, number))

    def group(footer: dict[int, Tree]) -> dict[int, Tree]:
        found: dict[int, Tree] = footer[4][1][1][0][1]
        return found

    def column(footer: dict[int, Tree], at: int = 0) -> dict[int, Tree]:
        found: dict[int, Tree] = group(footer)[1][1][1][at][1][3][1]
        return found

    def element(footer: dict[int, Tree], at: int) -> dict[int, Tree]:
        found: dict[int, Tree] = footer[2][1][1][at][1]
        return found

    for count in (-1, -(1 << 62), 0, 1, 1 << 40, (1 << 63) - 1):
        yield said(f"rows-{count}", lambda f, n: f.update({3: (6, n)}), count)
        yield said(f"group-rows-{count}", lambda f, n: group(f).update({3: (6, n)}), count)
        yield said(f"values-{count}", lambda f, n: column(f).update({5: (6, n)}), count)
        yield said(f"offset-{count}", lambda f, n: column(f).update({9: (6, n)}), count)
        yield said(f"stored-{count}", lambda f, n: column(f).update({7: (6, n)}), count)
        yield said(f"unpacked-{count}", lambda f, n: column(f).update({6: (6, n)}), count)
        yield said(f"index-{count}", lambda f, n: column(f).update({11: (6, n)}), count)
    for children in (-1, 0, 3, 5, 1_000, (1 << 31) - 1):
        yield said(f"children-{children}", lambda f, n: element(f, 0).update({5: (5, n)}), children)
        yield said(f"leaf-{children}", lambda f, n: element(f, 1).update({5: (5, n)}), children)
    yield said("no-schema", lambda f, _: f.update({2: (9, (12, []))}))
    yield said("no-groups", lambda f, _: f.update({4: (9, (12, []))}))
    yield said("group-without-columns", lambda f, _: group(f).update({1: (9, (12, []))}))
    for kind in (-1, 3, 6, 7, 99):
        yield said(f"type-{kind}", lambda f, n: element(f, 1).update({1: (5, n)}), kind)
        yield said(f"chunk-type-{kind}", lambda f, n: column(f).update({1: (5, n)}), kind)
        yield said(f"codec-{kind}", lambda f, n: column(f).update({4: (5, n)}), kind)
        yield said(f"repetition-{kind}", lambda f, n: element(f, 1).update({3: (5, n)}), kind)
        yield said(f"converted-{kind}", lambda f, n: element(f, 2).update({6: (5, n)}), kind)
    yield said("name-not-utf8", lambda f, _: element(f, 1).update({4: (8, b"\xff\xfe")}))
    yield said("no-name", lambda f, _: element(f, 1).pop(4))
    yield said("created-by-not-utf8", lambda f, _: f.update({6: (8, b"\xff")}))
    yield said("repeated-without-list", lambda f, _: element(f, 1).update({3: (5, 2)}))
    binary = parquet(pa.table({"id": [1], "text": [b"\xff\xfe\x80"], "number": [b"\x01\x02"]}))

    def texts(footer: dict[int, Tree]) -> None:
        element(footer, 2).update({6: (5, 0)})
        element(footer, 3).update({6: (5, 5), 7: (5, 2), 8: (5, 9)})

    yield "text-not-utf8", with_footer(binary, lambda f: element(f, 2).update({6: (5, 0)}))
    yield "decimal-in-bytes", with_footer(binary, texts)
    yield "deep-schema", _deep_schema(whole, 5_000)
    yield from _broken_parquet(whole)


def _deep_schema(whole: bytes, depth: int) -> bytes:
    def change(footer: dict[int, Tree]) -> None:
        root, leaf, *_ = footer[2][1][1]
        group = (12, {3: (5, 1), 4: (8, b"g"), 5: (5, 1)})
        root[1][5] = (5, 1)
        footer[2] = (9, (12, [root, *[group] * depth, leaf]))
        footer[4] = (9, (12, []))

    return with_footer(whole, change)


def _broken_parquet(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Return files that are cut off, or whose bytes are others."""
    for kept in (0, 3, 4, 8, 12, len(whole) // 2, len(whole) - 4, len(whole) - 1):
        yield f"cut-{kept}", whole[:kept]
    yield "magic-first", b"PAR2" + whole[4:]
    yield "magic-last", whole[:-4] + b"PAR2"
    for length in (0, 7, len(whole), (1 << 31) - 1, (1 << 32) - 1):
        yield f"footer-length-{length}", whole[:-8] + struct.pack("<I", length) + MAGIC
    # A list of schema elements, a text: as long as numbers go.
    for name, claim in {
        "list": b"\x15\x02\x19\xfc\xff\xff\xff\xff\x07",
        "text": b"\x15\x02\x68\xff\xff\xff\xff\x07",
        "map": b"\x15\x02\x1b\xff\xff\xff\xff\x07\x88",
    }.items():
        yield f"claim-{name}", MAGIC + claim + struct.pack("<I", len(claim)) + MAGIC
    yield "page-claims-much", _with_page_size(parquet(compression="none"), (1 << 31) - 1)
    yield "page-claims-nothing", _with_page_size(parquet(compression="zstd"), 0)


def _with_page_size(whole: bytes, size: int) -> bytes:
    """Let the first page say how large it becomes; what follows moves by some bytes."""
    stream = io.BytesIO(whole[4:])
    header = _read(stream, 12)
    header[1][2] = (5, size)
    return MAGIC + write_thrift(header) + whole[4 + stream.tell() :]


# Others


def arrow_files() -> Iterator[tuple[str, bytes]]:
    """Return Arrow files and streams, whole and broken."""
    whole = _ipc(ROWS)
    yield "whole.arrow", whole
    yield "compressed.arrow", _ipc(ROWS, pa.ipc.IpcWriteOptions(compression="zstd"))
    yield "types.arrow", _ipc(_types().drop_columns(["half"]))
    for kept in (0, 6, 8, 100, len(whole) // 2, len(whole) - 7):
        yield f"cut-{kept}.arrow", whole[:kept]
    bad = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 2, 3], np.int32).tobytes()), pa.py_buffer(b"\xff\xfe\x80")
    )
    yield "text-not-utf8.arrow", _ipc(pa.table({"id": [1, 2], "name": bad}))
    outside = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 1 << 20, 3], np.int32).tobytes()), pa.py_buffer(b"abc")
    )
    yield "offsets-outside.arrow", _ipc(pa.table({"id": [1, 2], "name": outside}))
    yield "claim.arrows", b"\xff\xff\xff\xff" + struct.pack("<i", (1 << 31) - 1) + b"x" * 100
    yield "text.arrows", b"this is a text and not an Arrow stream"


def _ipc(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def text_files() -> Iterator[tuple[str, bytes]]:
    """Return CSV and JSON files that are odd."""
    yield "empty.csv", b""
    yield "head.csv", b"id,name\n"
    yield "nul.csv", b"id,name\n1,\0\n"
    yield "utf16.csv", "id,name\n1,x\n".encode("utf-16")
    yield "latin1.csv", "id,name\n1,é\n".encode("latin-1")
    yield "quote.csv", b'id,name\n1,"never closed\n' + b"x\n" * 1_000
    yield "many-columns.csv", b",".join(b"c%d" % at for at in range(300_000)) + b"\n"
    yield "commas.csv", b"," * 2_000_000
    yield "cut.csv.gz", gzip.compress(b"id,name\n1,x\n" * 100)[:-20]
    yield "not-packed.csv.zst", b"id,name\n1,x\n"
    yield "one-line.csv.gz", gzip.compress(b"id,name\n1," + b"x" * (80 << 20), 9)
    yield "one-line.jsonl.gz", gzip.compress(b'{"id": 1, "name": "' + b"x" * (80 << 20), 9)
    yield "empty.jsonl", b""
    yield "deep.jsonl", b'{"id": ' + b"[" * 100_000
    yield "deep.json", b"[" * 200_000
    yield "digits.jsonl", b'{"id": ' + b"9" * 100_000 + b"}\n"
    yield "twice.jsonl", b'{"id": 1, "id": 2}\n'
    yield "not-utf8.jsonl", b'{"id": 1, "name": "\xff"}\n'
    yield "surrogate.jsonl", rb'{"id": 1, "name": "\ud800"}' + b"\n"
    yield "open.json", b'[{"id": 1}, {"id": '
    yield "nan.jsonl", b'{"id": NaN}\n'


def flipped(content: bytes, rng: Random) -> bytes:
    """Damage some bytes, most of them near the end, where footers are."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        near = rng.random() < 0.7
        at = rng.randrange(max(0, len(damaged) - 900) if near else 0, len(damaged))
        damaged[at] = rng.choice((damaged[at] ^ 1 << rng.randrange(8), 0, 0x7F, 0x80, 0xFF))
    return bytes(damaged)


def corpus() -> Iterator[tuple[str, bytes]]:
    """Return all files, by names that say what is odd about them."""
    for files in (whole_parquet(), encrypted_parquet(), lying_parquet()):
        for name, content in files:
            yield f"{name}.parquet", content
    yield from arrow_files()
    yield from text_files()


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in corpus():
        (directory / name).write_bytes(content)


if __name__ == "__main__":
    main()
