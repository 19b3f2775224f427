"""Which rows new rows stand in for, and which files are looked at to know."""

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from neve.keys.columns import KeyArray
from neve.model.data_file import DataFile, FileFormat
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.data_file_writer import WrittenFile
from neve.sstable.deletion_vector import superseded_rows
from tests.unit.sstable.data_files import FORMATS, Files, named_rows, plain_rows


class Lake:
    """Three files: keys 0 to 2997 by 3, in thousands."""

    def __init__(self, file_format: FileFormat = FileFormat.COLUMNAR) -> None:
        schema, rows = plain_rows(3_000)
        self.files = Files(schema)
        self.written: list[WrittenFile] = [
            self.files.write_one(rows.slice(start, 1_000), file_format)
            for start in range(0, 3_000, 1_000)
        ]
        self.opened: list[str] = []
        self.marked: dict[str, BitMap64] = {}

    def open(self, file: DataFile) -> DataFileReader:
        self.opened.append(file.path)
        return self.files.open(file)

    def superseded(self, keys: KeyArray) -> list[tuple[int, list[int]]]:
        found = superseded_rows(
            [each.file for each in self.written],
            keys,
            open_reader=self.open,
            vector_of=lambda file: self.marked.get(file.path),
        )
        return [
            (n, list(found[each.file.path]))
            for n, each in enumerate(self.written)
            if each.file.path in found
        ]

    def keys(self, *values: int) -> KeyArray:
        return self.files.encoder.encode_arrays([pa.array(values, pa.int64())])


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
def test_rows_of_the_keys_are_found_in_every_file(file_format: FileFormat) -> None:
    lake = Lake(file_format)
    keys = lake.keys(-5, 0, 1, 6, 2_997, 3_000, 8_997, 9_000)
    assert lake.superseded(keys) == [(0, [0, 2, 999]), (1, [0]), (2, [999])]


def test_only_files_whose_bounds_hold_a_key_are_opened() -> None:
    lake = Lake()
    assert lake.superseded(lake.keys(3_003, 3_006)) == [(1, [1, 2])]
    assert lake.opened == [lake.written[1].file.path]


def test_keys_between_two_files_open_none() -> None:
    lake = Lake()
    assert lake.superseded(lake.keys(-1, 2_998, 2_999, 10_000)) == []
    assert lake.opened == []


def test_no_keys_open_no_file() -> None:
    lake = Lake()
    assert lake.superseded(lake.keys()) == []
    assert lake.opened == []


def test_rows_that_are_marked_already_are_left_out() -> None:
    lake = Lake()
    lake.marked[lake.written[0].file.path] = BitMap64([2])
    lake.marked[lake.written[1].file.path] = BitMap64([0])
    assert lake.superseded(lake.keys(0, 6, 3_000)) == [(0, [0])]
    assert list(lake.marked[lake.written[0].file.path]) == [2]


@pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)
def test_hashed_keys_are_found_by_their_own_keys(file_format: FileFormat) -> None:
    schema, rows = named_rows(4_000)
    files = Files(schema)
    written = files.write_one(rows, file_format)
    places = np.arange(0, 4_000, 7)
    found = superseded_rows(
        [written.file],
        written.keys.take(places),
        open_reader=files.open,
        vector_of=lambda _: None,
    )
    assert found == {written.file.path: BitMap64(places.tolist())}
