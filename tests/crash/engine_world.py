"""A table on a simulated disk beside its model, and the steps that change both.

A world knows every state its rows were in, so that whatever a Version or a recovered table shows
can be looked up: it is one of them or it is wrong. The step under way is announced before it
begins; when the power goes in it, the table may be found as before the step or as after it. That
holds for rows and for the table's definition: its columns and how it is divided.

Where rows expire, the model forgets them as time passes, and the table may hold them for longer:
what a Version holds is compared without the rows that had expired when it was committed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.engine.table_options import TableOptions
from neve.errors import NotFound
from neve.model.version import Version
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.testing.clean_reader import CleanReader
from neve.testing.model_table import Key, ModelTable, Row, Rows
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.crash.engine_drafts import Draft
from tests.crash.engine_rows import (
    TICK,
    Shape,
    Violation,
    drawn_row,
    expect,
    other_columns,
    rows_by_key,
    time_near,
)

ROOT: Final = "/srv/lake"
NAME: Final = "shop.orders"
FEED: Final = "feed"
"""The application whose batches are applied."""
OPTIONS: Final = TableOptions(
    background=False,
    iceberg_publish="demand",  # publishing has power cuts of its own
    log_bytes=32 << 10,
    memtable_bytes=4 << 10,
    level0_files=3,
    level0_files_slow=6,
    level0_files_max=8,
    level1_bytes=16 << 10,
    file_bytes=8 << 10,
    cache_bytes=1 << 20,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a table says that it is: columns with types and order, and how it is divided."""

    schema_id: int
    columns: str
    partition_by: tuple[str, ...]


class World:
    """One table with its model; for one thread."""

    def __init__(self, disk: Disk, shape: Shape, *, seed: int, clock: SimulatedClock) -> None:
        self.shape = shape
        self.clock = clock
        self.disk = disk
        self.seed = seed
        self.options = OPTIONS
        self.model = ModelTable(shape.primary_key, ttl=shape.ttl)
        self.states: list[tuple[int, Rows]] = [(0, {})]
        """Every state that the rows were in, each with the age of its columns."""
        self.pending: Rows | None = None
        self.batch: int | None = None
        """The last batch of the feed that was acknowledged."""
        self.pending_batch: int | None = None
        self.evolving: tuple[ModelTable, Definition] | None = None
        """What the evolution that is pending leads to."""
        self.definition: Definition | None = None
        self.is_expiring = False
        self.is_created = False
        self.newest_state = 0
        """Place in `states` of the newest Version's rows."""
        self._generation = 0
        self._lake: Lake | None = None
        self._table: Table | None = None
        self._objects: LocalStore | None = None
        self._reader: CleanReader | None = None

    # Living

    def open(self, *, options: TableOptions | None = None) -> Table:
        """Open the lake again, and the table, which is made when missing."""
        options = options or self.options
        self._generation += 1
        ids = SeededIds(self.seed * 1_000 + self._generation)
        self._objects = LocalStore(ROOT, disk=self.disk, clock=self.clock, ids=ids)
        self._lake = Lake(self._objects, clock=self.clock, ids=ids)
        try:
            self._table = self._lake.table(NAME, options=options)
        except NotFound:
            if self.is_created:
                raise
            self._table = self._lake.create_table(
                NAME,
                self.shape.schema,
                self.shape.primary_key,
                partition_by=self.shape.partition_by,
                ttl=self.shape.ttl,
                options=options,
            )
            _ = self._table._open.engine
        if not self.is_created:
            self.definition = self.found_definition()
        self.is_created = True
        self.forget_files()
        return self._table

    def abandon(self) -> None:
        """Leave everything as a killed process does: nothing is closed, and nothing runs."""
        table, self._table = self._table, None
        if table is not None:
            forget(table)
        self._lake = None

    def close(self) -> None:
        """End in good order."""
        lake, self._lake = self._lake, None
        self.abandon()
        if lake is not None:
            lake.close()

    def inherit(self, disk: Disk, *, seed: int) -> "World":
        """Return the world of whoever finds this disk: it knows what this one knew."""
        clock = SimulatedClock(now_ms=self.clock.now_ms())
        other = World(disk, self.shape, seed=seed, clock=clock)
        other.options = self.options
        other.model = self.model.copy()
        other.states = list(self.states)
        other.pending, other.evolving = self.pending, self.evolving
        other.batch, other.pending_batch = self.batch, self.pending_batch
        other.definition = self.definition
        other.is_expiring = self.is_expiring
        other.is_created = self.is_created
        other.newest_state = self.newest_state
        return other

    @property
    def table(self) -> Table:
        assert self._table is not None
        return self._table

    @property
    def lake(self) -> Lake:
        assert self._lake is not None
        return self._lake

    @property
    def objects(self) -> LocalStore:
        assert self._objects is not None
        return self._objects

    def forget_files(self) -> None:
        """Have the plain reader read every file again."""
        self._reader = None

    # Changing

    @contextmanager
    def changing(self, after: Rows, *, batch: int | None = None) -> Iterator[None]:
        """Announce what the rows are after the call that follows, and note that it answered."""
        after = self.unexpired(after)  # a row may be written after its time
        self.pending, self.pending_batch = after, batch
        yield
        self.settle(after)

    def settle(self, rows: Rows) -> None:
        """Note the rows as they certainly are."""
        if self.pending is not None and self.pending_batch is not None:
            self.batch = self.pending_batch
        self.pending = self.evolving = self.pending_batch = None
        self.model.rows = rows
        self.states.append((self.model.age, rows))

    def announce_evolution(self, draft: Draft) -> None:
        """Announce what the table is after the evolution that ends next."""
        after = self.model.copy()
        schema = draft.evolution.schema
        if schema.columns != self.table.schema.columns:
            after.evolve(draft.changes)
        by = draft.partition_by
        definition = Definition(
            schema_id=after.age,
            columns=str(schema.arrow_schema),
            partition_by=tuple(self.table.spec.texts(schema) if by is None else by),
        )
        self.pending, self.evolving = after.rows, (after, definition)

    def settle_evolution(self) -> None:
        """Note that the evolution has happened."""
        assert self.evolving is not None
        after, self.definition = self.evolving
        self.model = after.copy()  # whoever finds this disk has it too
        self.settle(after.rows)

    def row(self, rng: Random, key: Key | None = None) -> Row:
        """Draw a row that has every column."""
        key = rng.choice(self.shape.keys) if key is None else key
        row = drawn_row(self.table.schema, key, rng)
        name = self.model.time_column
        if name is not None and rng.random() < 0.9:
            row[name] = time_near(self.clock.now_ms(), rng)
        return row

    def less(self, row: Row, rng: Random) -> tuple[Row, Row]:
        """Leave some columns out of a row; gives what is left, and what is stored."""
        given = dict(row)
        for column in other_columns(self.table.schema):
            may_be_missing = column.nullable or column.write_default is not None
            if may_be_missing and rng.random() < 0.2:
                del given[column.name]
        return given, self.model.with_defaults(given, row)

    def pass_time(self, seconds: float = TICK.total_seconds()) -> None:
        """Let some time pass, after which other rows have expired."""
        self.clock.advance(seconds)
        self.settle(self.unexpired(self.model.rows))
        self.table._open.engine.leases.renew_once()

    def unexpired(self, rows: Rows) -> Rows:
        """Rows that the table shows now, of rows with the current columns."""
        return self.model.unexpired(rows, self.clock.now_ms())

    def seen_at(self, version: Version) -> Rows:
        """Rows that a retained Version shows: those it had when it was committed."""
        return self.model.unexpired(
            self.model.at(version.number),
            version.facts.timestamp_ms,
            age=self.model.age_of(version.number),
        )

    # Checking

    def found_definition(self) -> Definition:
        """What the table says now that it is."""
        table = self.table
        return Definition(
            schema_id=table.schema.schema_id,
            columns=str(table.schema.arrow_schema),
            partition_by=tuple(table.spec.texts(table.schema)),
        )

    def check_definition(self) -> None:
        """The table is what it was made and evolved to be."""
        found = self.found_definition()
        if found != self.definition:
            raise Violation(f"the table is {found}, not {self.definition}")

    def check_rows(self) -> None:
        """The table shows the rows of the model, by key and by scan."""
        self.check_definition()
        self.check_batch()
        expected = self.model.rows
        expect(self.found_rows(), expected, "get_many")
        scanned = self.table.scan().to_arrow()
        if scanned.num_rows != len(expected):
            raise Violation(f"a scan gives {scanned.num_rows} rows, not {len(expected)}")
        if str(scanned.schema) != self.found_definition().columns:
            raise Violation(f"a scan gives columns {scanned.schema}")
        expect(rows_by_key(scanned, self.table.primary_key), expected, "scan")

    def found_rows(self) -> Rows:
        """Read every row by its key."""
        return rows_by_key(self.table.get_many(self.every_key()), self.table.primary_key)

    def every_key(self) -> list[object]:
        return [self.shape.bare(key) for key in self.shape.keys]

    def retained(self) -> list[Version]:
        """Read every retained Version from the manifest."""
        versions = self.table._open.stored.versions
        return list(versions.each_version_in(versions.store.read()))

    def plain_rows(self, version: Version) -> Rows:
        """Read a Version without any of neve's readers."""
        if self._reader is None:
            root = self.table._open.stored.paths.root
            self._reader = CleanReader(self.objects, root, self.shape.primary_key)
        schemas = {schema.schema_id: schema for schema in self.table._open.schemas}
        return self._reader.rows(version, schemas[version.facts.schema_id])

    def check_versions(self) -> None:
        """Every retained Version is clean, and shows rows as they were when it was committed."""
        numbers = set()
        for version in self.retained():
            numbers.add(version.number)
            self.check_origins(version)
            rows = self.plain_rows(version)
            known = self.model.versions.get(version.number)
            if known is not None:
                expect(rows, known, f"version {version.number}")
            elif version.number > self.model.version:
                # A schema's number is that of the schemas before it.
                age = version.facts.schema_id
                self.newest_state = self._find_state(rows, age, version)
                self.model.note(version.number, rows, age=age)
            else:
                raise Violation(f"version {version.number} had expired, and is back")
        missing = self.model.versions.keys() - numbers
        if missing and not self.is_expiring:
            raise Violation(f"versions {sorted(missing)} are gone")
        pinned = missing & set(self.model.tags.values())
        if pinned:
            raise Violation(f"versions {sorted(pinned)} are gone in spite of their tags")
        unread = min(self.model.consumers.values(), default=max(numbers))
        lost = [number for number in missing if number >= max(unread, 1)]
        if lost:
            raise Violation(f"versions {lost} are gone, and a consumer has read up to {unread}")
        self.model.expire(missing)

    def check_origins(self, version: Version) -> None:
        """A Version says of which table it is, and each file where its rows came from."""
        head, facts = self.table._open.stored.versions.head(), version.facts
        schemas = {schema.schema_id: schema.last_field_id for schema in self.table._open.schemas}
        told = facts.table_uuid, facts.last_column_id
        if told != (head.table_uuid, schemas[facts.schema_id]):
            raise Violation(f"version {version.number} is of table and last column {told}")
        for file in version.files.values():
            if not 0 < file.commit_ms_min <= file.commit_ms_max <= facts.timestamp_ms:
                raise Violation(f"{file.path} was committed at no time: {file}")
            stretches = file.wal_segments
            numbers = [each.log_number for each in stretches]
            ends = [(each.first_frame, each.last_frame) for each in stretches]
            is_ordered = sorted(set(numbers)) == numbers and sorted(ends) == ends
            is_real = all(0 < first <= last <= head.flushed_sequence for first, last in ends)
            is_whole = not file.sequence_max or (
                bool(ends) and ends[0][0] <= file.sequence_min and file.sequence_max <= ends[-1][1]
            )
            if not (is_ordered and is_real and is_whole):
                raise Violation(f"{file.path} names the wrong logs: {stretches}")

    def check_found(self) -> None:
        """Open what a dead process left: acknowledged rows, and the step under way or not."""
        self.open()
        evolving = self.evolving if self.pending is not None else None
        if evolving is not None and self.found_definition() == evolving[1] != self.definition:
            self.settle_evolution()
        self.check_definition()
        found = self.found_rows()
        applied = self.table.last_batch(FEED)
        if self.pending is None or applied != self.pending_batch:
            # Rows and number are there together, or neither.
            self.pending = self.pending if self.pending_batch is None else None
            self.pending_batch = None
        if self.pending is not None and evolving is None and found == self.pending:
            self.settle(found)
        else:
            expect(found, self.model.rows, "recovered")
        self.check_batch()
        self.check_versions()
        self.pending, self.evolving, self.is_expiring = None, None, False

    def check_batch(self) -> None:
        """The table knows the last batch of the feed."""
        applied = self.table.last_batch(FEED)
        if applied != self.batch:
            raise Violation(f"the last batch is {applied}, not {self.batch}")

    def _find_state(self, stored: Rows, age: int, version: Version) -> int:
        number, moment = version.number, version.facts.timestamp_ms
        if age > self.model.age:
            raise Violation(f"version {number} has schema {age}, which nobody made")

        def seen(rows: Rows) -> Rows:
            return self.model.unexpired(rows, moment, age=age)

        rows = seen(stored)
        for place in range(self.newest_state, len(self.states)):
            age_then, state = self.states[place]
            # What was written before an evolution may be committed after it.
            if age_then > age:
                continue
            if seen(self.model.evolved(state, since=age_then, until=age)) == rows:
                return place
        if self.pending is not None and self.evolving is None and seen(self.pending) == rows:
            return len(self.states) - 1
        raise Violation(f"version {number} shows rows as they never were: {sorted(rows)}")


def forget(table: Table) -> None:
    """Keep a table that nobody closes from closing itself when it is collected."""
    if table._open._forgotten is not None:
        table._open._forgotten.detach()
