"""The footer of a data file: what it says, what it covers, and files of earlier days."""

import base64
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import Corruption
from neve.keys.arrays import key_at
from neve.model.data_file import DataFile, FileFormat
from neve.sstable.data_file_footer import MAGIC, OpenFooter
from tests.unit.sstable.data_files import (
    FORMATS,
    PATHS,
    Files,
    index_path_of,
    path_of,
    rows_of_all_types,
)

GOLDENS = Path(__file__).parents[2] / "compatibility" / "data_files"
# Facts that a Version of the time had of the golden files.
GOLDEN_FOOTER_CRCS = {"columnar": 0x885EC3A9, "dual": 0x1F4160D4}


def golden(name: str) -> tuple[Files, DataFile, pa.Table]:
    """Put a golden file of format 1 into a store."""
    schema, rows = rows_of_all_types(40, key=("string", "id"))
    files = Files(schema)
    rows = sorted_by_key(files, rows)
    payload = (GOLDENS / f"{name}-format-1.parquet").read_bytes()
    keys = files.encoder.encode_arrays([rows.column(each) for each in files.encoder.names])
    file = DataFile(
        path=f"data/{name}.parquet",
        file_bytes=len(payload),
        row_count=40,
        level=0,
        key_min=key_at(keys, 0),
        key_max=key_at(keys, -1),
        format=FORMATS[name],
        footer_crc=GOLDEN_FOOTER_CRCS[name],
    )
    files.store.put(path_of(file), payload)
    files.store.put(index_path_of(file), (GOLDENS / f"{name}-format-1.index").read_bytes())
    return files, file, rows


def sorted_by_key(files: Files, rows: pa.Table) -> pa.Table:
    keys = files.encoder.encode_arrays([rows.column(each) for each in files.encoder.names])
    return rows.take(np.argsort(np.array(keys.to_pylist(), dtype=object))).combine_chunks()


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_format_1_is_read(name: str) -> None:
    files, file, rows = golden(name)
    reader = files.open(file)
    assert str(reader.read(None, start=0, stop=40).to_pylist()) == str(rows.to_pylist())
    assert reader.find(file.key_max) == 39
    reader.verify()
    # Read without the index file too.
    files.store.delete(index_path_of(file))
    again = files.open(file)
    assert str(again.read(None, start=0, stop=40).to_pylist()) == str(rows.to_pylist())
    assert again.find(file.key_max) == 39


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
def test_checksums_cover_every_byte_between_magic_and_footer(file_format: FileFormat) -> None:
    schema, rows = rows_of_all_types(200)
    files = Files(schema)
    payload = files.bytes_of(files.write_one(rows, file_format).file)
    metadata = pq.read_metadata(pa.BufferReader(payload))
    texts = metadata.metadata
    assert texts is not None
    stored = np.frombuffer(base64.b64decode(texts[b"neve.checksums"]), "<u4").tolist()
    at = len(MAGIC)
    found = []
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            length = metadata.row_group(group).column(leaf).total_compressed_size
            found.append(google_crc32c.value(payload[at : at + length]))
            at += length
    footer_at = len(payload) - 8 - int.from_bytes(payload[-8:-4], "little")
    found.append(google_crc32c.value(payload[at:footer_at]))
    assert stored == found


def test_the_checksum_of_the_footer_covers_length_and_magic() -> None:
    schema, rows = rows_of_all_types(5)
    files = Files(schema)
    file = files.write_one(rows).file
    payload = files.bytes_of(file)
    length = int.from_bytes(payload[-8:-4], "little")
    assert file.footer_crc == google_crc32c.value(payload[-8 - length :])


def test_bytes_that_are_no_parquet_are_corruption() -> None:
    schema, rows = rows_of_all_types(5)
    files = Files(schema)
    file = files.write_one(rows).file
    files.store.put(path_of(file), bytes(file.file_bytes))
    with pytest.raises(Corruption, match="does not end as Parquet does"):
        OpenFooter.read(file, store=files.store, paths=PATHS)


def test_a_footer_longer_than_the_file_is_corruption() -> None:
    schema, rows = rows_of_all_types(5)
    files = Files(schema)
    file = files.write_one(rows).file
    payload = files.bytes_of(file)
    longer = payload[:-8] + (1 << 31).to_bytes(4, "little") + MAGIC
    files.store.put(path_of(file), longer)
    with pytest.raises(Corruption, match="does not end as Parquet does"):
        OpenFooter.read(file, store=files.store, paths=PATHS)
