"""Rewrites of real data files: what goes in is what comes out."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from neve.compaction.local_executor import KeepMask, RowReading, execute
from neve.compaction.plan import CompactionPlan, CompactionReason
from neve.model.data_file import DataFile, FileFormat
from neve.sstable.data_file_writer import WrittenFile
from tests.unit.compaction.builders import vector_of
from tests.unit.sstable.data_files import (
    FORMATS,
    Files,
    named_rows,
    plain_rows,
    rows_of_all_types,
)

KINDS = {
    "number keys": plain_rows(400),
    "text keys": named_rows(400),
    "all types": rows_of_all_types(200),
    "uuid keys": rows_of_all_types(100, key=("uuid",)),
}


def rewrite(
    files: Files, inputs: list[DataFile], masks: dict[str, KeepMask]
) -> tuple[WrittenFile, ...]:
    plan = CompactionPlan(
        base=1,
        inputs=tuple(inputs),
        target_level=1,
        format=FileFormat.COLUMNAR,
        reason=CompactionReason.LEVEL0,
        file_bytes=1 << 30,
    )
    reading = RowReading(
        reader_of=files.open,
        mask_of=lambda file: masks.get(file.path),
        project=lambda rows, _: rows,
        encode_keys=lambda rows: files.encoder.encode_arrays(
            [rows[name] for name in files.encoder.names]
        ),
        keeps_lineage=False,
        check_cancelled=lambda: None,
    )
    return execute(
        plan,
        reading,
        make_writer=lambda plan: files.writer(plan.format),
        progress=lambda _: None,
    )


@pytest.mark.parametrize("source_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_live_row_is_in_the_new_file_in_its_place(
    kind: str, source_format: FileFormat
) -> None:
    schema, rows = KINDS[kind]
    files = Files(schema)
    dead = np.zeros(rows.num_rows, dtype=np.bool_)
    inputs: list[DataFile] = []
    masks: dict[str, KeepMask] = {}
    for part in range(3):
        places = np.arange(part, rows.num_rows, 3)
        file = files.write_one(rows.take(places), source_format).file
        keep = places % 4 != part
        dead[places[~keep]] = True
        masks[file.path] = keep
        inputs.append(replace(file, vector=vector_of(str(part), int((~keep).sum()))))

    (written,) = rewrite(files, inputs, masks)

    reader = files.open(written.file)
    reader.verify()
    found = reader.read(None, start=0, stop=written.file.row_count)
    # NaN is not equal to itself, but its text is.
    assert repr(found.to_pylist()) == repr(rows.filter(pa.array(~dead)).to_pylist())
