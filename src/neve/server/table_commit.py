"""TableCommits: commits of other engines to tables of neve.

1. Look for the commit: a retry of one that was made returns the table as it is.
2. Read the snapshots that the client wrote, before anything is changed.
3. Compare the requirements with what is published: a base that moved is a conflict.
4. Change the definition, if asked, as `evolve` does; then commit the rows (`ForeignCommit`).
5. Delete the client's files, and return the table. Its snapshot is neve's, not the client's.

A request that changes both the definition and rows makes two Versions. Its keys are checked before
the first. Rows that are refused for another reason leave the definition changed: whether they fit
shows only under the new one.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from threading import Lock
from typing import Final
from uuid import UUID

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.compatibility import DefinitionChange
from neve.catalog.foreign_definition import (
    PUBLISHED_ONLY,
    current_schema,
    default_of,
    identifier_ids,
    invalid,
    members_of,
    number_of,
    partition_texts,
    requested_table,
    sort_texts,
    table_schema,
)
from neve.catalog.foreign_transaction import ForeignPart
from neve.catalog.known_properties import FORMAT_VERSION
from neve.catalog.served_lake import ServedLake
from neve.errors import Conflict, InvalidArgument, NeveError, NotFound
from neve.iceberg.foreign_snapshots import ReadSnapshot
from neve.iceberg.guest_metadata import changed_document, check_requirements
from neve.jobs.foreign_commit import ForeignCommit
from neve.model.schema_json import Json, JsonObject, objects_of
from neve.model.version import Operation
from neve.server.error_model import UNSUPPORTED, RequestRefused
from neve.server.served_tables import CLIENTS, ROOM, ServedTable, ServedTables
from neve.storage.clock import Clock
from neve.storage.object_store import ObjectStore, plain_location

logger = logging.getLogger(__name__)

STAGED: Final = "staged"
"""Directory of the lake for the files of tables that are not created yet."""
LEFT_MS_MAX: Final = 3 * 24 * 60 * 60 * 1000
"""How old files that no commit took become: longer than a client works on one commit."""

_EVERY_MS: Final = 60 * 60 * 1000
_TRIES: Final = 5
_MAIN: Final = "main"
_DEFINITION: Final = frozenset(
    {
        "assign-uuid",
        "upgrade-format-version",
        "add-schema",
        "set-current-schema",
        "add-spec",
        "set-default-spec",
        "add-sort-order",
        "set-default-sort-order",
        "set-location",
        "set-properties",
        "remove-properties",
    }
)
# Hints for planners that neve does not keep; refusing them would refuse the commit around them.
_DROPPED: Final = frozenset(
    {
        "set-statistics",
        "remove-statistics",
        "set-partition-statistics",
        "remove-partition-statistics",
    }
)
# What an own change of the definition does not touch.
_ROW_REQUIREMENTS: Final = frozenset({"assert-table-uuid", "assert-ref-snapshot-id"})


@dataclass(slots=True)
class _Asked:
    """The updates of a request, by what has to be done."""

    definition: list[JsonObject] = field(default_factory=list)
    snapshots: list[JsonObject] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    tags_removed: list[str] = field(default_factory=list)
    main: int | None = None

    @classmethod
    def of(cls, updates: Sequence[JsonObject]) -> "_Asked":
        """Sort the updates; raises InvalidArgument for those that a table of neve cannot take."""
        asked = cls()
        for update in updates:
            action = update.get("action")
            if action in _DEFINITION:
                asked.definition.append(update)
            elif action == "add-snapshot":
                snapshot = update.get("snapshot")
                if not isinstance(snapshot, dict):
                    raise invalid("a snapshot is an object")
                asked.snapshots.append(snapshot)
            elif action == "set-snapshot-ref":
                asked._take_ref(update)
            elif action == "remove-snapshot-ref":
                asked.tags_removed.append(str(update.get("ref-name")))
            elif action not in _DROPPED:
                raise invalid(f"a table of neve does not take the update {str(action)[:60]!a}")
        ids = [each.get("snapshot-id") for each in asked.snapshots]
        if asked.main is not None and (not ids or asked.main != ids[-1]):
            raise invalid("main can only move to the snapshot that the commit adds last")
        if ids and asked.main is None:
            raise invalid("the commit adds a snapshot that no branch refers to")
        return asked

    def _take_ref(self, update: JsonObject) -> None:
        name, number = update.get("ref-name"), update.get("snapshot-id")
        if not isinstance(name, str) or not isinstance(number, int):
            raise invalid("a reference has a name and a snapshot id")
        if update.get("type") == "tag":
            self.tags[name] = number
        elif name == _MAIN:
            self.main = number
        else:
            raise invalid(f"only the branch main takes commits, not {name[:60]!a}")


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a request, read but not committed."""

    commit: ForeignCommit
    snapshots: tuple[ReadSnapshot, ...]


@dataclass(frozen=True, slots=True)
class TableUpdates:
    """What a transaction asks of one of its tables."""

    table: CatalogTable
    requirements: Sequence[Json]
    updates: Sequence[JsonObject]


class TableCommits:
    """Commits to the tables of one lake; safe for many threads."""

    def __init__(self, lake: ServedLake, served: ServedTables) -> None:
        self._lake = lake
        self._served = served
        self._files = ClientFiles(lake.objects, lake.clock)

    def new_place(self) -> str:
        """Return a location for the files of a table that is not created yet."""
        path = f"{STAGED}/{self._lake.new_uuid()}"
        return plain_location(self._lake.lake.location, path)

    def commit(
        self,
        table: CatalogTable,
        requirements: Sequence[Json],
        updates: Sequence[JsonObject],
        *,
        staged: str | None = None,
    ) -> ServedTable:
        """Commit updates; raises Conflict when a requirement is not met."""
        asked = _Asked.of(updates)
        rows = None
        if asked.snapshots:
            part = self._part(table, asked)
            commit = self._lake.transactions.foreign_commit(part, staged=staged)
            if commit.find_committed() is not None:
                return self._now(table)
            rows = _Rows(commit, self._lake.transactions.read(part, staged=staged))
        for left in reversed(range(_TRIES)):
            served = self._now(table)
            base, left_over = _base_of(table, json.loads(served.document), requirements)
            check_requirements(served.document, left_over)
            if rows is not None and asked.definition:
                rows.commit.check_keys([each.changes for each in rows.snapshots], base_version=base)
            if self._change_definition(table, json.loads(served.document), asked):
                requirements = [each for each in requirements if _is_of_rows(each)]
                asked.definition = []
                base = table.version
            if rows is None:
                break
            try:
                rows.commit.commit([each.changes for each in rows.snapshots], base_version=base)
            except Conflict:
                if not left:
                    raise
            else:
                break
        self._set_tags(table, asked)
        if rows is not None:
            self._clean(table, rows.snapshots)
        return self._now(table)

    def create(
        self,
        name: str,
        document: JsonObject,
        key: Sequence[str],
        updates: Sequence[JsonObject],
    ) -> ServedTable:
        """Create a table with the rows of its first commit; if they are refused, drop it again."""
        table = table_from_document(self._lake, name, document, key)
        rows = [each for each in updates if each.get("action") not in _DEFINITION]
        place = self._lake.guests.path_of(str(document.get("location")))
        is_staged = place is not None and place.startswith(f"{STAGED}/")
        try:
            return self.commit(table, [], rows, staged=place if is_staged else None)
        except (Conflict, InvalidArgument, NotFound):
            with suppress(NeveError):
                self._lake.lake.drop_table(name, purge=True)
            raise

    def find_created(self, name: str, updates: Sequence[JsonObject]) -> ServedTable | None:
        """Return a table that this very commit created, if its answer was lost."""
        if name not in self._lake.names().tables:
            return None
        table = self._lake.lake.load_table(name)
        given = [each.get("uuid") for each in updates if each.get("action") == "assign-uuid"]
        if table.uuid not in given:
            return None
        asked = _Asked.of([each for each in updates if each.get("action") not in _DEFINITION])
        if asked.snapshots and not self._is_committed(self._part(table, asked)):
            return None
        return self._now(table)

    def commit_all(self, changes: Sequence[TableUpdates]) -> None:
        """Commit rows of several tables, all or none; raises Conflict as `commit` does."""
        transactions = self._lake.transactions
        asked = [_Asked.of(each.updates) for each in changes]
        for change, updates in zip(changes, asked, strict=True):
            _check_joint(change.table, updates)
        writing = [
            (change.table, updates)
            for change, updates in zip(changes, asked, strict=True)
            if updates.snapshots
        ]
        is_done = [self._is_committed(self._part(*each)) for each in writing]
        if is_done and all(is_done):
            return
        if any(is_done):
            raise Conflict(
                "some tables of the transaction have its rows already, and others do not",
                hint="Load the tables again and repeat what is missing",
            )

        def bases() -> list[int]:
            """Compare all requirements with the tables; return the Versions that clients read."""
            found: list[int] = []
            for change in changes:
                document = self._now(change.table).document
                base, left = _base_of(change.table, json.loads(document), change.requirements)
                check_requirements(document, left)
                found.append(base)
            return found

        base_of = dict(zip([each.table.table_id for each in changes], bases(), strict=True))
        parts = [self._part(*each, base_of[each[0].table_id]) for each in writing]
        written = [transactions.read(part) for part in parts]
        if parts:
            transactions.commit(parts, check=bases)
        for (table, _), snapshots in zip(writing, written, strict=True):
            self._clean(table, snapshots)

    def _is_committed(self, part: ForeignPart) -> bool:
        return self._lake.transactions.foreign_commit(part).find_committed() is not None

    def _now(self, table: CatalogTable) -> ServedTable:
        revision = self._lake.revision(table.name)
        return self._served.of_table(table.refresh(), revision)

    def _part(self, table: CatalogTable, asked: _Asked, base_version: int = 0) -> ForeignPart:
        return ForeignPart(
            table_id=table.table_id, base_version=base_version, snapshots=tuple(asked.snapshots)
        )

    def _change_definition(self, table: CatalogTable, before: JsonObject, asked: _Asked) -> bool:
        """Change schema, partitions, sort order and properties; return whether any was asked."""
        if not asked.definition:
            return False
        encoded = json.dumps(before).encode()
        after: JsonObject = json.loads(changed_document(encoded, [], asked.definition))
        for name in ("location", "table-uuid"):
            if after.get(name) != before.get(name):
                raise invalid(f"the {name} of a table of neve cannot change")
        change = _definition_change(table, before, after)
        if change != DefinitionChange():
            table.update_definition(change)
        given, removed = _property_change(before, after)
        if given or removed:
            table.set_properties(given, remove=removed)
        return True

    def _set_tags(self, table: CatalogTable, asked: _Asked) -> None:
        work = table.stored.writer_state
        for name, number in asked.tags.items():
            is_new = asked.main is not None and number == asked.main
            work.tag(name, table.refresh().version if is_new else number)
        for name in asked.tags_removed:
            work.remove_tag(name)

    def _clean(self, table: CatalogTable, snapshots: Sequence[ReadSnapshot]) -> None:
        root = table.stored.paths.root
        locate = self._lake.guests.path_of
        written = [locate(each) for snapshot in snapshots for each in snapshot.written]
        self._files.delete([path for path in written if path is not None], root=root)
        self._files.sweep(root)


def _check_joint(table: CatalogTable, asked: _Asked) -> None:
    """Refuse what a transaction over several tables cannot do, before anything is changed."""
    if asked.definition or asked.tags or asked.tags_removed:
        raise RequestRefused(
            HTTPStatus.NOT_IMPLEMENTED,
            UNSUPPORTED,
            "a transaction over several tables changes rows only; "
            "change columns, partitions, properties and tags table by table",
        )
    if table.schema.rules.merge:
        raise RequestRefused(
            HTTPStatus.NOT_IMPLEMENTED,
            UNSUPPORTED,
            f"the table {table.name!a} has merge functions and takes no part in transactions over "
            "several tables",
        )


def _base_of(
    table: CatalogTable, document: JsonObject, requirements: Sequence[Json]
) -> tuple[int, list[Json]]:
    """Return the Version that a client read, and the requirements that are left to check.

    A compaction moves main without changing a row: what a client read before it is still right.
    """
    version, kept = table.version, [*requirements]
    current = document.get("current-snapshot-id")
    for each in requirements:
        required = members_of(each)
        seen = required.get("snapshot-id")
        is_main = (required.get("type"), required.get("ref")) == ("assert-ref-snapshot-id", _MAIN)
        if is_main and isinstance(seen, int) and isinstance(current, int) and seen < current:
            versions = table.stored.versions
            session = versions.store.read()
            try:
                between = [
                    versions.edit_in(session, number).facts.operation
                    for number in range(seen + 1, version + 1)
                ]
            except NotFound:
                continue
            if all(operation is Operation.REPLACE for operation in between):
                kept.remove(each)
                version = seen
    return version, kept


def table_from_document(
    lake: ServedLake, name: str, document: JsonObject, key: Sequence[str]
) -> CatalogTable:
    """Create a table of neve with the columns, partitions and properties of a document."""
    try:
        table_uuid = UUID(str(document.get("table-uuid")))
    except ValueError as error:
        raise invalid("the uuid of the table is not one") from error
    return lake.make_table(requested_table(name, document, key), table_uuid)


def _definition_change(
    table: CatalogTable, before: JsonObject, after: JsonObject
) -> DefinitionChange:
    change = DefinitionChange()
    present = table.schema
    schema = present
    old, new = current_schema(before), current_schema(after)
    if new.get("fields") != old.get("fields") or identifier_ids(new) != identifier_ids(old):
        if identifier_ids(new) not in ([], identifier_ids(old)):
            raise invalid("the primary key of a table cannot change")
        key = [column.name for column in present.key_columns]
        by_id = {each.get("id"): each.get("name") for each in objects_of(new.get("fields"))}
        key = [str(by_id.get(column.field_id, column.name)) for column in present.key_columns]
        asked = table_schema(new, key=key, last_id=number_of(after, "last-column-id"))
        schema = replace(asked, schema_id=present.schema_id, rules=present.rules)
        change = replace(change, schema=schema)
    spec = default_of(after, "partition-specs", "spec-id", "default-spec-id")
    if members_of(spec).get("fields") != members_of(
        default_of(before, "partition-specs", "spec-id", "default-spec-id")
    ).get("fields"):
        change = replace(change, partition_by=partition_texts(spec, schema))
    if after.get("default-sort-order-id") != before.get("default-sort-order-id"):
        change = replace(change, sort_by=sort_texts(after, schema))
    return change


def _property_change(before: JsonObject, after: JsonObject) -> tuple[dict[str, str], list[str]]:
    old, new = members_of(before.get("properties")), members_of(after.get("properties"))
    given = {
        name: str(value)
        for name, value in new.items()
        if old.get(name) != value and name not in PUBLISHED_ONLY
    }
    if number_of(after, "format-version") > number_of(before, "format-version"):
        given[FORMAT_VERSION] = str(after["format-version"])
    removed = [name for name in old if name not in new and name not in PUBLISHED_ONLY]
    return given, removed


def _is_of_rows(requirement: Json) -> bool:
    return members_of(requirement).get("type") in _ROW_REQUIREMENTS


class ClientFiles:
    """Deletes files that other engines wrote for commits, below `clients/`; for many threads.

    They are input: after the commit nothing needs them. What a client left behind, because it died
    or was refused, is deleted days later: a note beside the directory says when each file was seen
    first, because listings have no times.
    """

    def __init__(self, objects: ObjectStore, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        # Guarded by _lock: when the leftovers of a directory were looked at last.
        self._lock = Lock()
        self._looked: dict[str, int] = {}

    def delete(self, paths: Iterable[str], *, root: str) -> None:
        """Delete the files of a commit; those outside of the clients' places are left alone."""
        places = (f"{root}/{CLIENTS}/", f"{STAGED}/")
        for path in paths:
            if path.startswith(places):
                self._remove(path)

    def sweep(self, root: str) -> int:
        """Delete what clients left behind in a table, at most once in an hour; return how many."""
        directory = f"{root}/{CLIENTS}"
        now_ms = self._clock.now_ms()
        with self._lock:
            if abs(now_ms - self._looked.get(directory, 0)) < _EVERY_MS:
                return 0
            self._looked[directory] = now_ms
        try:
            return self._sweep(directory, now_ms)
        except NeveError as error:
            logger.warning("left files of clients place=%s cause=%s", directory, error)
            return 0

    def _sweep(self, directory: str, now_ms: int) -> int:
        note = f"{directory}-seen.json"
        seen = self._read(note)
        listed = (info.path for info in self._objects.list(f"{directory}/"))
        found = [path for path in listed if not path.endswith(f"/{ROOM}")]
        old = [path for path in found if now_ms - seen.get(path, now_ms) > LEFT_MS_MAX]
        for path in old:
            self._remove(path)
        gone = {*old}
        kept = {path: seen.get(path, now_ms) for path in found if path not in gone}
        if kept != seen:
            self._objects.put(note, json.dumps(kept).encode())
        if old:
            logger.info("deleted files of clients place=%s files=%d", directory, len(old))
        return len(old)

    def _read(self, note: str) -> dict[str, int]:
        try:
            seen = json.loads(self._objects.get(note).payload)
        except (NotFound, ValueError):
            return {}
        if not isinstance(seen, dict):
            return {}
        return {path: at for path, at in seen.items() if isinstance(at, int)}

    def _remove(self, path: str) -> None:
        try:
            self._objects.delete(path)
        except InvalidArgument:
            return  # a name that the store refuses was never read, either
        except NeveError as error:
            logger.warning("left a file of a client path=%s cause=%s", path, error)
