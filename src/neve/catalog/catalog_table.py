"""CatalogTable: a table as its catalog knows it: definition, history and files, but no rows.

It shows the table as of its opening, its last refresh or its last change through this handle.
Changes are made on the table's newest state, whatever the handle shows.

CATALOG-C1  A change of the definition is committed in the version store first, where requirements
            are checked, and is copied to the catalog afterwards.
CATALOG-C2  A commit that lost a race is repeated unless something that it depends on has changed: a
            commit that changes files depends on its base, others only on their requirements.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from neve.catalog.compatibility import DefinitionChange, plan_change
from neve.catalog.evolution import Evolution
from neve.catalog.known_properties import changed_properties, check_removed, retention_of
from neve.catalog.lake_stores import LakeStores
from neve.catalog.moment import Moment, moment_ms
from neve.catalog.settlement import Settlement, up_to_date
from neve.catalog.sort_order import SortOrder
from neve.catalog.stored_table import StoredTable, TableState
from neve.catalog.table_meta import TableMeta
from neve.catalog.version_view import (
    PartitionWords,
    VersionStats,
    VersionView,
    list_consumers,
    list_history,
    summed_commits,
)
from neve.engine.publishing import CommitPublishing
from neve.errors import (
    Conflict,
    Corruption,
    InvalidArgument,
    NeveError,
    NotFound,
    Phrase,
    Wording,
)
from neve.manifest.commit import CommitPlan
from neve.manifest.documents import Lease
from neve.manifest.table_head import HEAD_KEY, HeadChange, Requirements, Retention, TableHead
from neve.manifest.table_versions import Committed
from neve.manifest.version_reader import Session, TableSnapshot
from neve.manifest.writer_state import Consumer
from neve.model.display import counted, shown_moment
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.suggestions import similar_name_hint
from neve.model.version import Version, VersionEdit, VersionFacts
from neve.notebook import ShownTable, shown_page, table_page
from neve.storage.own_process import KeptInProcess
from neve.table.table_context import Published, TableParts


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a handle shows; replaced as a whole."""

    meta: TableMeta
    state: TableState


class CatalogTable(KeptInProcess):
    """A table of a catalog; safe for many threads."""

    def __init__(
        self, stores: LakeStores, settlement: Settlement, meta: TableMeta, state: TableState
    ) -> None:
        # Fixed at construction.
        self.table_id = meta.table_id
        self._stores = stores
        self._settlement = settlement
        # Read without a lock: replaced as a whole.
        self._seen = _Seen(up_to_date(meta, state), state)

    def __repr__(self) -> str:
        return f"CatalogTable({self.name!r}, version={self.version})"

    def _repr_html_(self) -> str:
        return shown_page(f"Table {self.name}", self._page)

    # What it is

    @property
    def meta(self) -> TableMeta:
        """What the catalog keeps of the table."""
        return self._seen.meta

    @property
    def name(self) -> str:
        """Dotted name."""
        return self._seen.meta.name

    @property
    def uuid(self) -> str:
        """Unique identifier of the table."""
        return self._seen.meta.table_uuid

    @property
    def location(self) -> str:
        """Where its files are, as a URI."""
        return self.stored.location

    @property
    def format_version(self) -> int:
        """Iceberg's format version."""
        return self._seen.meta.format_version

    @property
    def properties(self) -> dict[str, str]:
        """Properties that were set."""
        return dict(self._seen.meta.properties)

    @property
    def retention(self) -> Retention:
        """How much history is kept."""
        return self._seen.state.head.retention

    @property
    def version(self) -> int:
        """Number of the current Version: the current snapshot id."""
        return self._seen.state.head.current_version

    @property
    def schema(self) -> TableSchema:
        """The current schema."""
        return self._seen.state.schema

    @property
    def schemas(self) -> tuple[TableSchema, ...]:
        """Every schema it ever had, oldest first."""
        schemas = self._seen.state.schemas
        return tuple(schemas[number] for number in sorted(schemas))

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return tuple(column.name for column in self.schema.key_columns)

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self._seen.state.spec

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """Every partition spec it ever had, oldest first."""
        specs = self._seen.state.specs
        return tuple(specs[number] for number in sorted(specs))

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order."""
        return self._seen.state.sort_order

    @property
    def stored(self) -> StoredTable:
        """Its version store and its paths, for committers."""
        self._stores.check_open()
        return self._stores.stored_table(self.table_id)

    # What it holds

    def current(self) -> VersionView:
        """Return the current Version."""
        return self._view(self._seen.state.version)

    def files(self) -> pa.Table:
        """Return the data files of the current Version."""
        return self.current().files()

    def stats(self) -> VersionStats:
        """Return sums over the files of the current Version, and the bytes of index files."""
        stored = self.stored
        index_bytes = sum(info.size for info in stored.objects.list(f"{stored.paths.index}/"))
        return replace(self.current().stats(), index_bytes=index_bytes)

    def history(self) -> pa.Table:
        """Return the retained Versions, oldest first."""
        commits = summed_commits(self.stored.versions, self._seen.state.session)
        return list_history(commits, self._tags())

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases that readers hold now; each keeps Versions and their files."""
        found = self.stored.leases(known_ms=self._seen.state.head.last_transaction_ms)
        return tuple(sorted(found, key=lambda lease: (lease.version, lease.taken_ms)))

    def consumers(self) -> pa.Table:
        """Return the named consumers of the change feed, and whether each keeps history now."""
        state = self._seen.state
        found = self.stored.writer_state.consumers_in(state.session)
        return list_consumers(found, state.head, now_ms=self._stores.clock.now_ms())

    def holding_consumers(self) -> tuple[Consumer, ...]:
        """Return the consumers that keep history now, the one that keeps most first."""
        state, now_ms = self._seen.state, self._stores.clock.now_ms()
        found = self.stored.writer_state.consumers_in(state.session)
        holding = [each for each in found if each.holds(state.head, now_ms)]
        return tuple(sorted(holding, key=lambda each: (each.position, each.name)))

    def drop_consumer(self, name: str) -> None:
        """Remove a consumer; what it kept may expire. Raises NotFound."""
        self._stores.check_writable()
        self.stored.writer_state.drop_consumer(name)

    def at(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> VersionView:
        """Return a retained Version: by number, by the time it was current, or by a tag.

        Raises NotFound with those that exist.
        """
        given = [each for each in (version, timestamp, tag) if each is not None]
        if len(given) != 1:
            raise InvalidArgument(
                f"{counted(len(given), 'version')} given instead of one",
                hint=Wording(Phrase.NAME_ONE_VERSION),
            )
        if tag is not None:
            if not isinstance(tag, str):
                raise InvalidArgument(
                    f"a tag is text, not {type(tag).__name__}",
                    hint=Wording(Phrase.NAME_A_TAG),
                )
            version = self._tagged(tag)
        elif timestamp is not None:
            version = self._current_at(moment_ms(timestamp, self._stores.clock))
        elif isinstance(version, bool) or not isinstance(version, int):
            raise InvalidArgument(
                f"a version is a number, not {type(version).__name__}",
                hint=Wording(Phrase.NAME_A_VERSION),
            )
        return self._view(self.stored.versions.version_in(self._seen.state.session, version))

    def refresh(self) -> "CatalogTable":
        """Show the newest state; raises NotFound when the table was dropped. Returns itself."""
        state = self.stored.load()
        meta = self._stores.entries.find_meta(self.table_id)
        if meta is None:
            raise NotFound(f"the table {self.name!a} was dropped")
        self._seen = _Seen(up_to_date(meta, state), state)
        return self

    def see_known(self) -> None:
        """Show the newest state that this process knows: after its own commit it asks no one."""
        state = self.stored.state_in(self.stored.store.read_known())
        meta = self._stores.entries.find_meta(self.table_id, is_known=True)
        if meta is None:
            raise NotFound(f"the table {self.name!a} was dropped")
        self._seen = _Seen(up_to_date(meta, state), state)

    def iceberg_metadata(self) -> str:
        """Return the location of the current Iceberg metadata, published first if missing.

        Other engines read the table from there; rows that are not flushed are not in it.
        """
        return self._published() if self._stores.read_only else self.stored.publisher.publish()

    def _published(self) -> str:
        """Return the location of what is published, without publishing; raises NotFound."""
        newest = self.stored.publisher.newest()
        if newest is None:
            raise NotFound(
                f"the table {self.name!a} has not been published",
                path=self.stored.paths.metadata,
                hint=Wording(Phrase.PUBLISH_FIRST),
            )
        return newest

    def publish_committed(self) -> None:
        """Publish what was just committed to other engines; raises NotPublished."""
        CommitPublishing(self.job_parts()).publish_committed(self.version)

    def job_parts(self) -> TableParts:
        """Return the parts of the table for work beside its live writer."""
        return self.stored.parts(
            self.properties,
            recorder=self._stores.recorder_of(self.name),
            listener=self._stores.listener,
            is_published=True,
        )

    # What changes it

    def set_properties(
        self, properties: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> None:
        """Set some properties and remove others, all or none; the rest stays.

        Retention is a part of the table's definition: it changes first, by a separate commit that
        makes a Version.
        """
        self._stores.check_writable()
        entries = self._stores.entries
        given, gone = properties or {}, check_removed(remove)
        self.refresh()
        after = changed_properties(self.meta.properties, given=given, removed=gone)
        if retention_of(after) != self.retention:
            self.update_definition(DefinitionChange(retention=retention_of(after)))
        now_ms = self._stores.clock.now_ms()
        entries.change_meta(
            self.table_id,
            lambda meta: replace(
                meta,
                properties=changed_properties(meta.properties, given=given, removed=gone),
                updated_ms=now_ms,
            ),
        )
        self._refresh_after_commit()
        self.publish_committed()

    def evolve(self) -> Evolution:
        """Begin a block whose changes of columns, partitions and sort order are one Version.

        `with table.evolve() as e: e.add_column("note", "string")`; see `Evolution`.
        """
        self.refresh()
        return Evolution(
            self.schema,
            specs=self.specs,
            found=Requirements(
                schema_id=self.schema.schema_id,
                spec_id=self.spec.spec_id,
                sort_order=self._seen.state.head.sort_order,
            ),
            commit=lambda asked, requirements: self.update_definition(
                asked, requirements=requirements
            ),
        )

    def update_schema(
        self, schema: TableSchema, *, requirements: Requirements | None = None
    ) -> int:
        """Set a schema made from the current one; return the Version.

        The schema has the id of the one it was made from (`dataclasses.replace` keeps it): when the
        table has another schema by now, this raises CatalogConflict.
        """
        return self.update_definition(DefinitionChange(schema=schema), requirements=requirements)

    def update_partition_spec(
        self, partition_by: Sequence[str], *, requirements: Requirements | None = None
    ) -> int:
        """Change the partitions of rows written from now on; return the Version."""
        change = DefinitionChange(partition_by=partition_by)
        return self.update_definition(change, requirements=requirements)

    def update_sort_order(
        self, sort_by: Sequence[str], *, requirements: Requirements | None = None
    ) -> int:
        """Change the sort order of rows written from now on; return the Version."""
        change = DefinitionChange(sort_by=sort_by)
        return self.update_definition(change, requirements=requirements)

    def update_definition(
        self, asked: DefinitionChange, *, requirements: Requirements | None = None
    ) -> int:
        """Change several parts of the definition as one Version; return its number.

        A change that changes nothing makes no Version. Raises CatalogConflict for an unmet
        requirement.
        """
        self._stores.check_writable()
        stored, required = self.stored, requirements or Requirements()
        self.refresh()

        def plan(state: TableState) -> CommitPlan | None:
            return plan_change(state, asked, format_version=self.format_version)

        # Refuse an impossible change before announcing anything.
        required.check(self._seen.state.head, path=stored.paths.manifest)
        if plan(self._seen.state) is None:
            return self.version
        announcement = self._stores.entries.announce_change(self.table_id)
        with self._settlement.after_commit(announcement):
            committed = stored.committer.commit(
                lambda session, _snapshot: plan(stored.state_in(session)), checks=required
            )
        self._refresh_after_commit()
        self.publish_committed()
        return committed.snapshot.head.current_version

    def commit(
        self,
        edits: Sequence[VersionEdit],
        change: HeadChange | None = None,
        *,
        requirements: Requirements | None = None,
    ) -> Committed:
        """Commit edits of the current Version, all or none.

        Raises CatalogConflict for an unmet requirement, and Conflict when an edit that changes
        files was made on an older Version (CATALOG-C2).
        """
        self._stores.check_writable()
        stored, given = self.stored, tuple(edits)

        def plan(_session: Session, snapshot: TableSnapshot) -> CommitPlan:
            head = snapshot.head
            if not given or given[0].base == head.current_version:
                return CommitPlan(edits=given)
            if any(edit.changes_files for edit in given):
                raise Conflict(
                    f"the table is at version {head.current_version}, not {given[0].base}",
                    keys=(HEAD_KEY,),
                    path=stored.paths.manifest,
                    hint="Make the change again on the current version",
                )
            moved = [
                replace(
                    edit,
                    base=head.current_version + place,
                    facts=_current_facts(edit.facts, head, change),
                )
                for place, edit in enumerate(given)
            ]
            return CommitPlan(edits=moved)

        committed = stored.committer.commit(plan, change, checks=requirements)
        self._refresh_after_commit()
        return committed

    def _refresh_after_commit(self) -> None:
        """Show what was committed; the commit stands even if this fails."""
        with suppress(NeveError):
            self.refresh()

    @property
    def published_lineage(self) -> Published:
        """The lineage of the table's rows as published to other engines."""
        return self.stored.publisher

    def _page(self) -> str:
        seen, problems = self._seen, [*self._problems()]
        state, location = seen.state, ""
        try:
            location = self.location
            state = self.stored.load()
        except NeveError as error:
            problems.append(str(error))
        meta = up_to_date(seen.meta, state)
        return table_page(
            ShownTable(
                name=meta.name,
                location=location,
                format_version=meta.format_version,
                properties=meta.properties,
                schema=state.schema,
                spec=state.spec,
                sorted_by=[*map(str, state.sort_order.fields)],
                version=state.version,
                unflushed=self._unflushed(),
                problems=tuple(problems),
            )
        )

    def _unflushed(self) -> int | None:
        """Return the number of changes that are not in files, if it is known."""
        return None

    def _problems(self) -> Iterator[str]:
        """Yield what keeps the handle from working."""
        yield from ()

    def _view(self, version: Version) -> VersionView:
        state = self._seen.state
        facts = version.facts
        path = self.stored.paths.manifest
        if facts.schema_id not in state.schemas or facts.spec_id not in state.specs:
            raise Corruption(
                f"version {version.number} is of schema {facts.schema_id} and partition spec "
                f"{facts.spec_id}, which the table never had",
                path=path,
            )
        return VersionView(
            version=version,
            schema=state.schemas[facts.schema_id],
            spec=state.specs[facts.spec_id],
            words=PartitionWords(state.specs, state.schemas, path=path),
        )

    def _tags(self) -> dict[str, int]:
        return self.stored.writer_state.tags_in(self._seen.state.session)

    def _tagged(self, tag: str) -> int:
        tags = self._tags()
        if tag not in tags:
            raise NotFound(
                f"there is no tag {tag!a}",
                hint=similar_name_hint(tag, tags) or Wording(Phrase.NAME_A_TAG),
            )
        return tags[tag]

    def _current_at(self, moment: int) -> int:
        """Find the Version that was current at a time: the last one committed by then."""
        state = self._seen.state
        # A Version kept alone was replaced by one that has expired, at an unknown time.
        commits = [
            commit
            for commit in self.stored.versions.commits_in(state.session)
            if commit.number >= state.head.oldest_version
        ]
        by_then = [commit for commit in commits if commit.facts.timestamp_ms <= moment]
        if not by_then:
            oldest = commits[0]
            raise NotFound(
                f"no retained version was current at {shown_moment(moment)}",
                path=self.stored.paths.manifest,
                hint=f"The oldest one, {oldest.number}, was committed at "
                f"{shown_moment(oldest.facts.timestamp_ms)}",
            )
        return by_then[-1].number


def _current_facts(facts: VersionFacts, head: TableHead, change: HeadChange | None) -> VersionFacts:
    """Return facts with the table's current schema and spec, unless the change sets others."""
    asked = change or HeadChange()
    return replace(
        facts,
        schema_id=head.schema_id if asked.schema_id is None else asked.schema_id,
        spec_id=head.spec_id if asked.spec_id is None else asked.spec_id,
    )
