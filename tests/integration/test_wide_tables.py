"""Work on wide tables grows with the number of columns, and not with its square.

Counted are the instructions that Python executes, not seconds: the work for 24 columns more must be
twice the work for 12 more. One call of `list.index` per column would not be seen; a loop would.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

import neve

_COLUMNS = 12
_STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])


@dataclass
class WorkDone:
    """Instructions executed, by what was done."""

    counts: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        done = 0

        def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
            nonlocal done
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            done += event == "opcode"
            return trace

        before = sys.gettrace()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)
        self.counts[name] = done


def _work_on_a_table(folder: Path, columns: int) -> dict[str, int]:
    """Do everything once to a table of so many columns."""
    work = WorkDone()
    plain, nested = ([f"{kind}{at}" for at in range(columns)] for kind in "ps")
    names = plain + nested
    fields: list[pa.Field[Any]] = [pa.field(name, pa.int64()) for name in plain]
    fields += [pa.field(name, _STRUCT) for name in nested]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *fields])
    row = {"id": 1, **dict.fromkeys(plain, 3), **{name: {"x": 1, "y": "a"} for name in nested}}
    rows = pa.Table.from_pylist([row | {"id": at} for at in range(4)], schema)
    options = neve.TableOptions(background=False)
    with neve.open(folder) as lake:
        with work.of("create"):
            lake.create_table("a.wide", schema=schema, primary_key=["id"])
        table = lake.table("a.wide", options=options)
        with work.of("put"):
            table.put(row)
        with work.of("upsert"):
            table.upsert(rows)
        with work.of("scan of memory"):
            table.scan().to_arrow()
        with work.of("flush and publish"):
            table.flush()
        table.upsert(rows)
        table.flush()
        with work.of("scan"):
            table.scan().to_arrow()
        with work.of("scan of named columns"):
            table.scan(columns=names).to_arrow()
        with work.of("scan with a filter on every column"):
            table.scan(" and ".join(f"{name} is not null" for name in names)).to_arrow()
        with work.of("scan with an Arrow filter"):
            table.scan(cast("pc.Expression", pc.field("p7").is_valid())).to_arrow()
        with work.of("get"):
            table.get(3)
        with work.of("compact"):
            table.compact(full=True)
        with work.of("verify"):
            table.verify()
        with work.of("changes"):
            table.changes(0).read_all()
        with work.of("evolve"), table.evolve() as e:
            e.add_column("note", "string")
        with work.of("scan after evolving"):
            table.scan().to_arrow()
    with work.of("reopen"), neve.open(folder) as lake, lake.table("a.wide") as table:
        table.get(1)
    return work.counts


def test_every_operation_on_a_wide_table_takes_work_in_proportion_to_its_columns(
    tmp_path: Path,
) -> None:
    _work_on_a_table(tmp_path / "warm", _COLUMNS)  # whatever is loaded or remembered once
    few, more, most = (
        _work_on_a_table(tmp_path / str(times), times * _COLUMNS) for times in (1, 2, 4)
    )
    for name, counted in few.items():
        first, second = more[name] - counted, most[name] - more[name]
        # Twice as many columns more: quadratic work grows to the fourfold, and a little is noise.
        assert second <= 2.7 * first + 5_000, f"{name}: {counted}, {more[name]}, {most[name]}"
