"""ModelTable: a table with a primary key as a dict, to compare with the real one.

A test makes the same changes to the model and to a table, and compares both. The model has no log
and no files: only rows by key, the rows of each committed Version, and the changes of columns since
then.

    model = ModelTable(["id"])
    model.put({"id": 1, "name": "ada"})
    model.commit(table.flush())
    assert model.at(2) == model.rows == {(1,): {"id": 1, "name": "ada"}}

    model.evolve([Added("note", default="-"), Renamed("name", "who")])
    assert model.rows == {(1,): {"id": 1, "who": "ada", "note": "-"}}

Rows are never changed in place, so copies of the dict are snapshots. A Version keeps the columns of
its time. Its age is the number of evolutions before it; rows of one age are converted to a later
one, never back.

A model with a time to live forgets expired rows when `pass_time` is called. Its Versions keep what
they hold: `unexpired` returns what readers of a time see of it.

    model = ModelTable(["id"], ttl=("ts", timedelta(hours=1)))
    model.pass_time(clock.now_ms())
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

Row = dict[str, object]
Key = tuple[object, ...]
Rows = dict[Key, Row]


@dataclass(frozen=True, slots=True)
class Added:
    """A new column; existing rows, and rows that leave it out, have the default."""

    name: str
    default: object = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A column was dropped."""

    name: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A column was renamed."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class DefaultSet:
    """Rows that leave a column out have another value from now on; existing rows stay."""

    name: str
    default: object


ColumnChange = Added | Dropped | Renamed | DefaultSet
"""One change of an evolution; moving and widening columns does not affect a dict."""


class ModelTable:
    """Rows by key, and the rows of every retained Version; for one thread."""

    def __init__(
        self, primary_key: Sequence[str], *, ttl: tuple[str, timedelta] | None = None
    ) -> None:
        """Begin like a new table: Version 1 has no rows. `ttl` is a column and a duration."""
        self.primary_key = tuple(primary_key)
        self.time_to_live = None if ttl is None else ttl[1]
        self._time_columns = [] if ttl is None else [ttl[0]]
        """Names of the column that rows expire by, by age."""
        self.rows: Rows = {}
        self.versions: dict[int, Rows] = {1: {}}
        """Rows of each retained Version, with the columns of its time."""
        self.tags: dict[str, int] = {}
        self.consumers: dict[str, int] = {}
        """Positions of the consumers of the change feed; Versions from there on are kept."""
        self.defaults: dict[str, object] = {}
        """Values, other than NULL, of columns in rows that leave them out."""
        self.evolutions: list[tuple[ColumnChange, ...]] = []
        self._ages: dict[int, int] = {1: 0}

    def key_of(self, row: Mapping[str, object]) -> Key:
        """Return the key of a row, a tuple even for a single column."""
        return tuple(row[name] for name in self.primary_key)

    def copy(self) -> "ModelTable":
        """Return an independent copy."""
        other = ModelTable(self.primary_key)
        other.time_to_live = self.time_to_live
        other._time_columns = list(self._time_columns)
        other.rows = dict(self.rows)
        other.versions = dict(self.versions)
        other.tags = dict(self.tags)
        other.consumers = dict(self.consumers)
        other.defaults = dict(self.defaults)
        other.evolutions = list(self.evolutions)
        other._ages = dict(self._ages)
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
        """Write some columns; for a key without a row, the others are their default or NULL."""
        for row in rows:
            key = self.key_of(row)
            before = self.rows.get(key)
            if before is None:
                before = self.with_defaults(_part(row, self.primary_key), list(row))
            self.rows[key] = {**before, **_part(row, columns)}

    def with_defaults(self, row: Mapping[str, object], columns: Iterable[str]) -> Row:
        """Return a row with all of these columns: missing ones are their default or NULL."""
        return {name: row.get(name, self.defaults.get(name)) for name in columns}

    def put_if_absent(self, row: Mapping[str, object]) -> bool:
        """Write one row if its key has none; return whether it was written."""
        return self.compare_and_put(row, None)

    def compare_and_put(
        self, row: Mapping[str, object], expected: Mapping[str, object] | None
    ) -> bool:
        """Write one row if the row of its key is as expected; return whether it was written."""
        is_expected = self.rows.get(self.key_of(row)) == expected
        if is_expected:
            self.put(row)
        return is_expected

    def delete(self, key: Key) -> None:
        """Delete a row; a missing one is ignored."""
        self.rows.pop(key, None)

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete many rows."""
        for key in keys:
            self.delete(key)

    def delete_where(self, matches: Callable[[Row], bool]) -> None:
        """Delete every row that matches."""
        self.rows = {key: row for key, row in self.rows.items() if not matches(row)}

    # Columns

    @property
    def age(self) -> int:
        """Number of evolutions so far."""
        return len(self.evolutions)

    def evolve(self, changes: Iterable[ColumnChange]) -> None:
        """Change columns, one change after another; keys of rows stay as they are."""
        evolution = tuple(changes)
        if self._time_columns:
            self._time_columns.append(_renamed(self._time_columns[-1], evolution))
        for change in evolution:
            match change:
                case Added(name, default) | DefaultSet(name, default):
                    self.defaults[name] = default
                case Dropped(name):
                    self.defaults.pop(name, None)
                case Renamed(old, new):
                    self.defaults[new] = self.defaults.pop(old, None)
                    self.primary_key = tuple(
                        new if name == old else name for name in self.primary_key
                    )
        self.evolutions.append(evolution)
        self.rows = self.evolved(self.rows, since=self.age - 1)

    def evolved(self, rows: Rows, *, since: int, until: int | None = None) -> Rows:
        """Return rows of one age as rows of a later one, by default the current one."""
        for evolution in self.evolutions[since:until]:
            rows = {key: _turned(row, evolution) for key, row in rows.items()}
        return rows

    # Time

    @property
    def time_column(self) -> str | None:
        """Current name of the column that rows expire by; None when they do not expire."""
        return self._time_columns[-1] if self._time_columns else None

    def unexpired(self, rows: Rows, now_ms: int, *, age: int | None = None) -> Rows:
        """Return rows without those that have expired at a time; they have the columns of an age.

        Rows expire when their time to live has passed since the time in their column, which has a
        time zone; NULL never does.
        """
        if self.time_to_live is None:
            return rows
        name = self._time_columns[self.age if age is None else age]
        now = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms)
        return {
            key: row
            for key, row in rows.items()
            if not isinstance(moment := row[name], datetime) or moment + self.time_to_live > now
        }

    def pass_time(self, now_ms: int) -> None:
        """Forget the rows that have expired; Versions keep theirs."""
        self.rows = self.unexpired(self.rows, now_ms)

    # Versions

    @property
    def version(self) -> int:
        """Number of the newest Version that was committed."""
        return max(self.versions)

    def commit(self, version: int) -> None:
        """Record that everything written so far is in a Version; a known one does not change."""
        assert version >= self.version, "numbers of versions ascend"
        if version not in self.versions:
            self.note(version, dict(self.rows), age=self.age)

    def rewrite(self, version: int) -> None:
        """Record Versions up to this one with the rows of the last known one.

        That is the effect of a compaction, and of an evolution on committed rows.
        """
        rows = self.at_present(self.version)
        for number in range(self.version + 1, version + 1):
            self.note(number, rows, age=self.age)

    def rollback(self, to: int, *, version: int) -> None:
        """Record a Version with the rows of an older one, which are the table's rows now."""
        self.rows = dict(self.at_present(to))
        self.note(version, dict(self.rows), age=self.age)

    def note(self, version: int, rows: Rows, *, age: int) -> None:
        """Record the rows of a Version, with the columns of an age."""
        self.versions[version] = rows
        self._ages[version] = age

    def tag(self, name: str, version: int) -> None:
        """Name a Version."""
        assert version in self.versions, "only retained versions are tagged"
        self.tags[name] = version

    def consume(self, name: str, version: int) -> None:
        """Record that a consumer has read up to a Version; its position never goes back."""
        self.consumers[name] = max(version, self.consumers.get(name, 0))

    def expire(self, versions: Iterable[int]) -> None:
        """Forget Versions."""
        for number in versions:
            del self.versions[number], self._ages[number]

    # Reading

    def at(self, version: int) -> Rows:
        """Return the rows of a retained Version, with the columns of its time."""
        return self.versions[version]

    def age_of(self, version: int) -> int:
        """Return the number of evolutions before a retained Version."""
        return self._ages[version]

    def at_present(self, version: int) -> Rows:
        """Return the rows of a retained Version with the current columns."""
        return self.evolved(self.versions[version], since=self._ages[version])

    def scan(
        self,
        matches: Callable[[Row], bool] | None = None,
        *,
        key_range: tuple[Key | None, Key | None] = (None, None),
        reverse: bool = False,
    ) -> list[Row]:
        """Return the rows that match, by key; ranges exclude their end."""
        return scan_rows(self.rows, matches, key_range=key_range, reverse=reverse)


def _part(row: Mapping[str, object], names: Sequence[str]) -> Row:
    return {name: row[name] for name in names}


def _renamed(name: str, evolution: Iterable[ColumnChange]) -> str:
    for change in evolution:
        if isinstance(change, Renamed) and change.old == name:
            name = change.new
    return name


def _turned(row: Row, evolution: Iterable[ColumnChange]) -> Row:
    for change in evolution:
        match change:
            case Added(name, default):
                row = {**row, name: default}
            case Dropped(gone):
                row = {name: value for name, value in row.items() if name != gone}
            case Renamed(old, new):
                row = {(new if name == old else name): value for name, value in row.items()}
            case DefaultSet():
                pass
    return row


def scan_rows(
    rows: Mapping[Key, Row],
    matches: Callable[[Row], bool] | None = None,
    *,
    key_range: tuple[Key | None, Key | None] = (None, None),
    reverse: bool = False,
) -> list[Row]:
    """Return the matching ones of these rows, by key; ranges exclude their end."""
    first, end = key_range
    return [
        rows[key]
        for key in sorted(rows, reverse=reverse)
        if (first is None or first <= key) and (end is None or key < end)
        if matches is None or matches(rows[key])
    ]
