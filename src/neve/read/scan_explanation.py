"""ScanExplanation: what a scan will do, and what its last run did, for people to read.

scan of version 7, by key descending, at most 10 rows
  columns    id, amount
  filter     amount > 5
  keys       80000005 up to 80000009
  files      3 of 40 (30 pruned by key, 2 by partition, 5 by statistics)
  filter on  2 of 3 files
  memory     120 rows
  bytes      1,234,567 to read at most
  groups     4 read, 9 pruned in the last run
"""

from dataclasses import dataclass

from neve.notebook import facts, note, page, shown_page

_SHOWN_KEY_BYTES = 24
_HOW_TO_READ = "not read yet: to_arrow(), to_pandas(), to_polars(), to_batches() and count() read"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanExplanation:
    """Facts about a scan; `str` prints them."""

    version: int
    columns: tuple[str, ...]
    filter: str
    """As it was asked for; empty for none."""
    order: str
    """"none", "ascending" or "descending" by key."""
    limit: int | None
    key_start: bytes | None
    key_end: bytes | None
    files_total: int
    files_read: int
    pruned_by_key: int
    pruned_by_partition: int
    pruned_by_statistics: int
    needs_filter: dict[str, bool]
    """By path of each file that is read: whether the filter is asked of its rows."""
    rows_memtable: int
    """Live rows in memory whose keys are in the range."""
    byte_count: int
    """Stored bytes of the columns that are read; what is pruned inside of files is counted."""
    groups_read: int | None
    """Row groups of the last run that gave rows to its end; None before the first."""
    groups_pruned: int | None

    def __str__(self) -> str:
        lines = [self._title()]
        for title, text in self._parts():
            if text:
                lines.append(f"  {title:<11}{text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return shown_page("Scan", self._page)

    def _page(self) -> str:
        hint = note(_HOW_TO_READ if self.groups_read is None else "")
        return page(self._title().capitalize(), facts(dict(self._parts())), hint)

    def _title(self) -> str:
        order = "" if self.order == "none" else f", by key {self.order}"
        limit = "" if self.limit is None else f", at most {self.limit:,} rows"
        return f"scan of version {self.version}{order}{limit}"

    def _parts(self) -> list[tuple[str, str]]:
        reasons = [
            f"{count:,} by {name}"
            for count, name in (
                (self.pruned_by_key, "key"),
                (self.pruned_by_partition, "partition"),
                (self.pruned_by_statistics, "statistics"),
            )
            if count
        ]
        pruned = f" (pruned: {', '.join(reasons)})" if reasons else ""
        asked = sum(self.needs_filter.values())
        return [
            ("columns", ", ".join(self.columns)),
            ("filter", self.filter),
            ("keys", self._keys()),
            ("files", f"{self.files_read:,} of {self.files_total:,}{pruned}"),
            ("filter on", f"{asked:,} of {self.files_read:,} files" if self.filter else ""),
            ("memory", f"{self.rows_memtable:,} rows"),
            ("bytes", f"{self.byte_count:,} to read at most"),
            (
                "groups",
                f"{self.groups_read:,} read, {self.groups_pruned:,} pruned in the last run"
                if self.groups_read is not None
                else "",
            ),
        ]

    def _keys(self) -> str:
        if self.key_start is None and self.key_end is None:
            return ""
        start = "the first" if self.key_start is None else _shown_key(self.key_start)
        end = "the last" if self.key_end is None else _shown_key(self.key_end)
        return f"{start} up to {end}"


def _shown_key(key: bytes) -> str:
    text = key[:_SHOWN_KEY_BYTES].hex()
    return text if len(key) <= _SHOWN_KEY_BYTES else f"{text}…"
