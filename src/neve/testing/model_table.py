"""ModelTable: what a table with a primary key is, as a dict and nothing else.

A test does to the model what it does to a table and asks both. The model knows no log, no files and
no order of work: rows by key, and what they were when a Version was committed.

    model = ModelTable(["id"])
    model.put({"id": 1, "name": "ada"})
    model.commit(table.flush())
    assert model.at(2) == model.rows == {(1,): {"id": 1, "name": "ada"}}

Rows that are in the model are never changed in place, so copies of the dict are snapshots.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

Row = dict[str, object]
Key = tuple[object, ...]
Rows = dict[Key, Row]


class ModelTable:
    """Rows by key, and the rows of every retained Version; for one thread."""

    def __init__(self, primary_key: Sequence[str]) -> None:
        """Begin as a new table does: Version 1 has no rows."""
        self.primary_key = tuple(primary_key)
        self.rows: Rows = {}
        self.versions: dict[int, Rows] = {1: {}}
        """Rows of each retained Version."""
        self.tags: dict[str, int] = {}

    def key_of(self, row: Mapping[str, object]) -> Key:
        """Give the key of a row, a tuple also for a single column."""
        return tuple(row[name] for name in self.primary_key)

    def copy(self) -> "ModelTable":
        """Give a model that goes its own way from here."""
        other = ModelTable(self.primary_key)
        other.rows = dict(self.rows)
        other.versions = dict(self.versions)
        other.tags = dict(self.tags)
        return other

    # Writing

    def put(self, row: Mapping[str, object]) -> None:
        """Write one row."""
        self.rows[self.key_of(row)] = dict(row)

    def upsert(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Write many rows; of two with one key the later wins."""
        for row in rows:
            self.put(row)

    def upsert_columns(self, rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
        """Write some columns of rows that have all; a key without a row gets NULL in the others."""
        for row in rows:
            key = self.key_of(row)
            before = self.rows.get(key) or {**dict.fromkeys(row), **_part(row, self.primary_key)}
            self.rows[key] = {**before, **_part(row, columns)}

    def delete(self, key: Key) -> None:
        """Delete a row, whether it is there or not."""
        self.rows.pop(key, None)

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete many rows."""
        for key in keys:
            self.delete(key)

    def delete_where(self, matches: Callable[[Row], bool]) -> None:
        """Delete every row that matches."""
        self.rows = {key: row for key, row in self.rows.items() if not matches(row)}

    # Versions

    @property
    def version(self) -> int:
        """Number of the newest Version that was committed."""
        return max(self.versions)

    def commit(self, version: int) -> None:
        """Note that everything written so far is in a Version; one that is known stays as it is."""
        assert version >= self.version, "numbers of versions ascend"
        self.versions.setdefault(version, dict(self.rows))

    def rewrite(self, version: int) -> None:
        """Note Versions up to this one with the rows of the last known one: a compaction."""
        rows = self.versions[self.version]
        for number in range(self.version + 1, version + 1):
            self.versions[number] = rows

    def rollback(self, to: int, *, version: int) -> None:
        """Note a Version that has the rows of an older one, which are the table's rows now."""
        self.rows = dict(self.versions[to])
        self.versions[version] = dict(self.rows)

    def tag(self, name: str, version: int) -> None:
        """Name a Version."""
        assert version in self.versions, "only retained versions are tagged"
        self.tags[name] = version

    def expire(self, versions: Iterable[int]) -> None:
        """Forget Versions."""
        for number in versions:
            del self.versions[number]

    # Reading

    def at(self, version: int) -> Rows:
        """Give the rows of a retained Version."""
        return self.versions[version]

    def scan(
        self,
        matches: Callable[[Row], bool] | None = None,
        *,
        key_range: tuple[Key | None, Key | None] = (None, None),
        reverse: bool = False,
    ) -> list[Row]:
        """Give the rows that match, by key; the end of a range is not in it."""
        return scan_rows(self.rows, matches, key_range=key_range, reverse=reverse)


def _part(row: Mapping[str, object], names: Sequence[str]) -> Row:
    return {name: row[name] for name in names}


def scan_rows(
    rows: Mapping[Key, Row],
    matches: Callable[[Row], bool] | None = None,
    *,
    key_range: tuple[Key | None, Key | None] = (None, None),
    reverse: bool = False,
) -> list[Row]:
    """Give those of some rows that match, by key; the end of a range is not in it."""
    first, end = key_range
    return [
        rows[key]
        for key in sorted(rows, reverse=reverse)
        if (first is None or first <= key) and (end is None or key < end)
        if matches is None or matches(rows[key])
    ]
