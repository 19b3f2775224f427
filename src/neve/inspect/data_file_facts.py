"""DataFileFacts: what the footer of a data file says, and whether its bytes are still the same.

`neve.sstable.data_file_footer` draws the bytes. The footer itself cannot be checked here: its
checksum is in the manifest.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.inspect.opened_file import OpenedFile
from neve.inspect.parquet_batches import (
    LIMIT_HINT,
    STREAM_BYTES,
    ParquetBudget,
    check_not_encrypted,
    parquet_batches,
)
from neve.inspect.shown_text import Json, value_to_json, value_to_text
from neve.model.arrow_types import ArrowField, child_fields, field_id_of
from neve.model.data_file import DataFile
from neve.model.display import counted, shown
from neve.sstable.data_file_footer import MAGIC, TRAILER_BYTES, OpenFooter

_STAMP: Final = "neve."
_STAMPS: Final = (
    "neve.format",
    "neve.table-id",
    "neve.level",
    "neve.sequence-min",
    "neve.sequence-max",
    "neve.key-min",
    "neve.key-max",
)
_VALUE_LENGTH: Final = 32
_BATCH_ROWS: Final = 16_384
_NO_TYPES: Final = frozenset({"none", ""})
# Drops how Parquet's older type names were converted.
_TYPE_ORIGIN: Final = re.compile(r", is_from_converted_type=\w+|, force_set_converted_type=\w+")


class _Statistics(Protocol):
    """What Parquet says about one chunk."""

    has_min_max: bool
    has_null_count: bool
    null_count: int
    min: Any
    max: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetColumn:
    """One leaf column, over all row groups."""

    path: str
    field_id: int | None
    physical_type: str
    logical_type: str | None
    compression: str
    encodings: tuple[str, ...]
    compressed_bytes: int
    uncompressed_bytes: int
    null_count: int | None
    """None if a row group does not have it."""
    lowest: Json
    highest: Json
    bounds_text: str | None
    """Both as text for people, None if unknown."""

    @property
    def type_words(self) -> str:
        """Both types, the logical one only if there is one."""
        if self.logical_type is None:
            return self.physical_type
        return f"{self.physical_type} {self.logical_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """One row group: where it is, and what is wrong with it."""

    row_count: int
    offset: int
    byte_count: int
    damage: tuple[str, ...] = ()
    skipped: str | None = None
    """Why its pages were not decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFinding:
    """The result of checking the pages of one row group, or the bytes after all groups."""

    group: int | None
    damage: tuple[str, ...] = ()
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileFacts:
    """Everything about one file."""

    name: str
    byte_count: int
    row_count: int
    created_by: str
    footer_at: int
    footer_bytes: int
    footer_crc: int
    stamps: dict[str, str]
    """What only neve writes, except the checksums."""
    columns: tuple[ParquetColumn, ...]
    groups: tuple[GroupPlace, ...]
    is_sealed: bool
    """Whether it has checksums of its chunks."""
    other_problems: tuple[str, ...] = ()
    other_skipped: tuple[str, ...] = ()
    """Why the pages of the other groups were not decoded."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong."""
        return (*(each for group in self.groups for each in group.damage), *self.other_problems)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Everything that was not checked, and why."""
        named = (group.skipped for group in self.groups)
        return (*(each for each in named if each is not None), *self.other_skipped)

    @property
    def checksum_state(self) -> str:
        """`whole` or `damaged` by checksums of chunks; without those `decoded` or `damaged`.

        It is `skipped` if pages were not decoded because they need too much memory.
        """
        if self.problems:
            return "damaged"
        if self.skipped:
            return "skipped"
        return "whole" if self.is_sealed else "decoded"

    @property
    def checksum_words(self) -> str:
        """What was compared, if nothing is wrong."""
        if not self.is_sealed:
            return "all pages can be read; the file has no checksums of neve"
        chunks = len(self.groups) * len(self.columns)
        return f"{counted(chunks, 'chunk')} and the page indexes after them are whole"

    def with_findings(self, findings: Iterable[PageFinding]) -> "DataFileFacts":
        """Return the facts with the results of checking pages."""
        groups = [*self.groups]
        problems, skipped = [*self.other_problems], [*self.other_skipped]
        for found in findings:
            if found.group is None:
                problems += found.damage
                skipped += [] if found.skipped is None else [found.skipped]
            else:
                groups[found.group] = replace(
                    groups[found.group], damage=found.damage, skipped=found.skipped
                )
        return replace(
            self,
            groups=tuple(groups),
            other_problems=tuple(problems),
            other_skipped=tuple(skipped),
        )


class PagesToCheck:
    """The pages of a file whose footer was read."""

    def __init__(self, opened: OpenedFile, footer: OpenFooter) -> None:
        self._opened = opened
        self._footer = footer

    def findings(self, *, memory_bytes: int, report: Callable[[], None]) -> Iterator[PageFinding]:
        """Return what is wrong with the pages, group by group; intact groups are left out.

        If neve wrote checksums, they are compared; otherwise all pages are decoded.
        """
        if self._footer.checksums is None:
            yield from self._decoded(memory_bytes, report)
        else:
            yield from self._compared(report)

    def _compared(self, report: Callable[[], None]) -> Iterator[PageFinding]:
        """Compare the checksums of all chunks, one at a time, and of the bytes after them."""
        checksums, chunks = self._footer.checksums, self._footer.chunks
        assert checksums is not None
        schema = self._footer.metadata.schema
        end = len(MAGIC)
        place = 0
        for group in range(len(chunks.starts)):
            damage: list[str] = []
            starts, lengths = chunks.starts[group].tolist(), chunks.lengths[group].tolist()
            for at, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                report()
                end = max(end, start + length)
                if google_crc32c.value(self._opened.read_at(start, length)) != checksums[place]:
                    damage.append(
                        f"column {shown(schema.column(at).path)} of row group {group} is damaged, "
                        f"at byte {start:,}"
                    )
                place += 1
            if damage:
                yield PageFinding(group=group, damage=tuple(damage))
        tail = self._opened.read_at(end, self._footer.offset - end)
        if google_crc32c.value(tail) != checksums[-1]:
            yield PageFinding(
                group=None, damage=(f"the page indexes are damaged, at byte {end:,}",)
            )

    def _decoded(self, memory_bytes: int, report: Callable[[], None]) -> Iterator[PageFinding]:
        """Decode all pages; Arrow compares the checksums of those that have one."""
        metadata = self._footer.metadata
        file = pq.ParquetFile(
            pa.PythonFile(io.BufferedReader(_Window(self._opened)), mode="r"),
            metadata=metadata,
            page_checksum_verification=True,
            pre_buffer=False,
            buffer_size=STREAM_BYTES,
        )
        budget = ParquetBudget(
            read_at=self._opened.read_at,
            metadata=metadata,
            file_bytes=self._opened.byte_count,
            memory_bytes=memory_bytes,
        )
        for group in range(metadata.num_row_groups):
            report()
            words = f"row group {group} "
            try:
                for columns in budget.bundles(group):
                    for batch in parquet_batches(
                        file, group=group, columns=columns, batch_rows=_BATCH_ROWS, report=report
                    ):
                        batch.validate(full=True)
            except LimitExceeded as error:
                skipped = f"{words}was not decoded: {error.message}. {error.hint}"
                yield PageFinding(group=group, skipped=skipped)
            except MemoryError:
                skipped = (
                    f"{words}was not decoded: it takes more than {memory_bytes:,} bytes of memory. "
                    f"{LIMIT_HINT}"
                )
                yield PageFinding(group=group, skipped=skipped)
            except (pa.ArrowException, OSError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                yield PageFinding(group=group, damage=(f"{words}cannot be read: {reason}",))


def read_facts(
    opened: OpenedFile, *, path: str, report: Callable[[], None]
) -> tuple[DataFileFacts, PagesToCheck]:
    """Read the facts of a file; raises InvalidArgument for another kind of file, Corruption.

    `report` is called repeatedly while it works.
    """
    footer, content = _footer_of(opened, path)
    metadata = footer.metadata
    starts, lengths = footer.chunks.starts, footer.chunks.lengths
    field_ids = _field_ids(metadata)
    columns = []
    for at in range(metadata.num_columns):
        report()
        columns.append(_column(metadata, at, field_ids))
    texts = {
        name.decode(errors="replace"): text.decode(errors="replace")
        for name, text in (metadata.metadata or {}).items()
    }
    begins_well = opened.read_at(0, len(MAGIC)) == MAGIC
    facts = DataFileFacts(
        name=opened.name,
        byte_count=opened.byte_count,
        row_count=metadata.num_rows,
        created_by=metadata.created_by or "an unknown writer",
        footer_at=footer.offset,
        footer_bytes=len(content),
        footer_crc=google_crc32c.value(content),
        stamps={name.removeprefix(_STAMP): texts[name] for name in _STAMPS if name in texts},
        columns=tuple(columns),
        groups=tuple(
            GroupPlace(
                row_count=metadata.row_group(at).num_rows,
                offset=int(starts[at].min()) if starts.shape[1] else 0,
                byte_count=int(lengths[at].sum()),
            )
            for at in range(metadata.num_row_groups)
        ),
        is_sealed=footer.checksums is not None,
        other_problems=() if begins_well else ("the file does not begin as Parquet does",),
    )
    return facts, PagesToCheck(opened, footer)


def facts_from_json(content: Any) -> DataFileFacts:  # noqa: ANN401 - JSON of another process
    """Read facts as `asdict` gives them."""
    columns = (
        ParquetColumn(**{**each, "encodings": tuple(each["encodings"])})
        for each in content["columns"]
    )
    groups = (GroupPlace(**{**each, "damage": tuple(each["damage"])}) for each in content["groups"])
    lists = {"columns": tuple(columns), "groups": tuple(groups)}
    lists |= {name: tuple(content[name]) for name in ("other_problems", "other_skipped")}
    return DataFileFacts(**{**content, **lists})


def finding_from_json(content: Any) -> PageFinding:  # noqa: ANN401 - JSON of another process
    """Read a finding as `asdict` gives it."""
    return PageFinding(**{**content, "damage": tuple(content["damage"])})


def _footer_of(opened: OpenedFile, path: str) -> tuple[OpenFooter, bytes]:
    size = opened.byte_count
    tail = opened.read_at(max(0, size - TRAILER_BYTES), TRAILER_BYTES)
    begins = opened.read_at(0, len(MAGIC)) == MAGIC
    check_not_encrypted(opened.read_at, size, path)
    if not begins and tail[-len(MAGIC) :] != MAGIC:
        likeness = opened.likeness()
        looks = "" if likeness is None else f"; it looks like {likeness}"
        raise InvalidArgument(
            f"{path} is not a Parquet file: it neither begins nor ends with PAR1{looks}",
            hint="Name a data file, such as one in the directory data of a table",
        )
    length = TRAILER_BYTES + int.from_bytes(tail[:4], "little")
    if tail[-len(MAGIC) :] != MAGIC or length + len(MAGIC) > size:
        raise Corruption(
            "the file does not end as Parquet does: it may be cut off",
            path=path,
            offset=size,
            hint="Restore it from a copy",
        )
    content = opened.read_at(size - length, length)
    try:
        rows = pq.read_metadata(pa.BufferReader(MAGIC + content)).num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corruption(
            f"the footer cannot be read: {error}", path=path, offset=size - length
        ) from error
    # Only size and rows matter here; there is no Version to compare with.
    file = DataFile(path=path, file_bytes=size, row_count=rows, level=0, key_min=b"", key_max=b"")
    return OpenFooter(file, path, content), content


def _column(metadata: pq.FileMetaData, at: int, field_ids: Mapping[str, int]) -> ParquetColumn:
    column = metadata.schema.column(at)
    chunks = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)]
    statistics = [cast("_Statistics", each.statistics) for each in chunks if each.is_stats_set]
    is_known = len(statistics) == len(chunks)
    has_nulls = is_known and all(each.has_null_count for each in statistics)
    lowest, highest = _bounds(statistics) if is_known else (None, None)
    logical = _TYPE_ORIGIN.sub("", str(column.logical_type))
    return ParquetColumn(
        path=column.path,
        field_id=field_ids.get(column.path),
        physical_type=column.physical_type,
        logical_type=None if logical.lower() in _NO_TYPES else logical,
        compression=chunks[0].compression if chunks else "UNCOMPRESSED",
        encodings=tuple(sorted({each for chunk in chunks for each in chunk.encodings})),
        compressed_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        uncompressed_bytes=sum(chunk.total_uncompressed_size for chunk in chunks),
        null_count=sum(each.null_count for each in statistics) if has_nulls else None,
        lowest=value_to_json(lowest),
        highest=value_to_json(highest),
        bounds_text=None if lowest is None else _bounds_text(lowest, highest),
    )


def _bounds_text(lowest: object, highest: object) -> str:
    shortest, longest = (value_to_text(each, length=_VALUE_LENGTH) for each in (lowest, highest))
    return f"{shortest} to {longest}"


def _bounds(statistics: Sequence[_Statistics]) -> tuple[object, object]:
    """Return the lowest and highest value of all groups; None if Python cannot represent one."""
    known = [each for each in statistics if each.has_min_max]
    try:
        lowest = min((each.min for each in known), default=None)
        return lowest, max((each.max for each in known), default=None)
    except (ValueError, OverflowError, TypeError, ImportError, pa.ArrowException):
        return None, None


def _field_ids(metadata: pq.FileMetaData) -> dict[str, int]:
    """Return the field ids of leaves, by their paths in Parquet."""
    try:
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, ValueError):
        return {}
    leaves = _leaves((each.name, each) for each in schema)
    found = ((path, field_id_of(field)) for path, field in leaves)
    return {path: field_id for path, field_id in found if field_id is not None}


def _leaves(fields: Iterable[tuple[str, ArrowField]]) -> Iterator[tuple[str, ArrowField]]:
    for path, field in fields:
        kind = field.type
        if pa.types.is_struct(kind):
            yield from _leaves((f"{path}.{each.name}", each) for each in child_fields(kind))
        elif pa.types.is_map(kind):
            yield from _leaves(
                (f"{path}.key_value.{each.name}", each) for each in child_fields(kind)
            )
        elif pa.types.is_list(kind):
            yield from _leaves((f"{path}.list.{each.name}", each) for each in child_fields(kind))
        else:
            yield path, field


class _Window(io.RawIOBase):
    """An open file for Arrow to read."""

    def __init__(self, opened: OpenedFile) -> None:
        super().__init__()
        self._opened = opened
        self._at = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place."""
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._opened.byte_count}
        self._at = starts[whence] + offset
        return self._at

    def tell(self) -> int:
        """Say where the next read begins."""
        return self._at

    def readinto(self, target: object, /) -> int:
        """Read some bytes."""
        view = memoryview(cast("bytearray", target))
        content = self._opened.read_at(self._at, len(view))
        view[: len(content)] = content
        self._at += len(content)
        return len(content)
