"""ServedLake: what a server needs of a lake besides its public calls."""

from uuid import UUID

from neve.catalog.catalog_state import CatalogState
from neve.catalog.catalog_table import CatalogTable
from neve.catalog.foreign_transaction import ForeignTransactions
from neve.catalog.lake import Lake
from neve.catalog.table_name import TableName
from neve.catalog.table_request import TableRequest


class ServedLake:
    """What a server needs of a lake besides its public calls; safe for many threads."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._stores = lake._stores  # noqa: SLF001 - users of a lake do not see them
        self._entries = lake._entries  # noqa: SLF001
        self.guests = lake.guests
        self.objects = self._stores.objects
        self.clock = self._stores.clock
        self.transactions = ForeignTransactions(self._stores)

    def check_writable(self) -> None:
        """Raise InvalidArgument when the lake was opened for reading only; Closed when closed."""
        self._stores.check_writable()

    def names(self) -> CatalogState:
        """Return all names of the lake as of one moment: namespaces, tables and guests."""
        self._stores.check_open()
        return self._entries.state()

    def new_uuid(self) -> UUID:
        """Return an id for a new table."""
        return self._stores.ids.uuid()

    def revision(self, name: str) -> tuple[object, ...]:
        """Return a value that differs whenever what other engines see of a table may differ.

        It is much cheaper than loading the table; raises NotFound.
        """
        self._stores.check_open()
        meta = self._entries.meta(str(TableName.parse(name)))
        self.finish_transactions()
        session = self._stores.stored_table(meta.table_id).store.read()
        return meta.table_id, session.segment, tuple(sorted(meta.properties.items()))

    def finish_transactions(self) -> None:
        """Make commits that another process decided and did not live to make."""
        if not self._stores.read_only:
            self.transactions.finish()

    def make_table(self, definition: TableRequest, table_uuid: UUID) -> CatalogTable:
        """Make a table that another engine asked for, with the identity that it knows."""
        self._stores.check_writable()
        self.lake._create(definition, table_uuid)  # noqa: SLF001
        return self.lake.load_table(str(definition.name))
