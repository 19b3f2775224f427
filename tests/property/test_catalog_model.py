"""Random operations on a catalog against a plain model of it; a crash is just another rule."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.lake import Lake
from neve.catalog.table_name import TableName, with_ancestors
from neve.catalog.table_request import TableRequest
from neve.errors import AlreadyExists, InvalidArgument, NotFound
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.catalog.builders import ORDERS, a_table, with_renamed

NAMESPACES = ("a", "a.b", "a.b.c", "ä")
TABLES = tuple(f"{namespace}.{table}" for namespace in NAMESPACES for table in ("t", "b", "u"))
SORTS = ((), ("id",))

names = st.sampled_from(TABLES)
namespaces = st.sampled_from(NAMESPACES)


@dataclass
class ModelTable:
    """A table as it should be."""

    version: int = 1
    sort_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: list(ORDERS.names))


class CatalogAgreesWithModel(RuleBasedStateMachine):
    """Every operation happens in both, or is refused by both."""

    @initialize()
    def begin(self) -> None:
        self.objects = MemoryStore()
        self.clock = SimulatedClock()
        self.seed = 0
        self.namespaces: set[str] = set()
        self.tables: dict[str, ModelTable] = {}
        self.ids: set[str] = set()
        self.reopen()

    @rule()
    def reopen(self) -> None:
        self.seed += 1
        self.lake = Lake(self.objects, clock=self.clock, ids=SeededIds(self.seed))

    @rule(namespace=namespaces)
    def create_namespace(self, namespace: str) -> None:
        if namespace in self.namespaces:
            with pytest.raises(AlreadyExists):
                self.lake.create_namespace(namespace)
        else:
            self.lake.create_namespace(namespace)
            self.namespaces |= set(with_ancestors(namespace))

    @rule(namespace=namespaces)
    def drop_namespace(self, namespace: str) -> None:
        inside = [*self.tables, *self.namespaces]
        if namespace not in self.namespaces:
            with pytest.raises(NotFound):
                self.lake.drop_namespace(namespace)
        elif any(name.startswith(f"{namespace}.") for name in inside):
            with pytest.raises(InvalidArgument):
                self.lake.drop_namespace(namespace)
        else:
            self.lake.drop_namespace(namespace)
            self.namespaces.remove(namespace)

    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.tables:
            with pytest.raises(AlreadyExists):
                a_table(self.lake, name)
        else:
            self._made(name, a_table(self.lake, name))

    @rule(name=names)
    def create_and_crash_between_the_stores(self, name: str) -> None:
        if name not in self.tables:
            definition = TableRequest.of(name, ORDERS, ["id"])
            self.lake._entries.add_table(definition, self.lake._stores.ids.uuid())
            self.reopen()
            self._made(name, self.lake.load_table(name))

    @rule(name=names, purge=st.booleans())
    def drop(self, name: str, *, purge: bool) -> None:
        if name in self.tables:
            self.lake.drop_table(name, purge=purge)
            del self.tables[name]
        else:
            with pytest.raises(NotFound):
                self.lake.drop_table(name, purge=purge)

    @rule(name=names)
    def drop_and_crash_between_the_stores(self, name: str) -> None:
        if name in self.tables:
            self.lake._entries.announce_drop(name)
            self.lake.load_table(name).stored.writer_state.drop()
            self.reopen()
            del self.tables[name]

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old not in self.tables:
            with pytest.raises(NotFound):
                self.lake.rename_table(old, new)
        elif new in self.tables:
            with pytest.raises(AlreadyExists):
                self.lake.rename_table(old, new)
        else:
            self.lake.rename_table(old, new)
            self.tables[new] = self.tables.pop(old)
            self.namespaces |= set(with_ancestors(TableName.parse(new).namespace))

    @rule(name=names, sort_by=st.sampled_from(SORTS))
    def sort(self, name: str, sort_by: tuple[str, ...]) -> None:
        model = self.tables.get(name)
        if model is None:
            return
        if sort_by != model.sort_by:
            model.version += 1
            model.sort_by = sort_by
        assert self.lake.load_table(name).update_sort_order(sort_by) == model.version

    @rule(name=names, key=st.sampled_from("xyz"), value=st.sampled_from("12"))
    def set_property(self, name: str, key: str, value: str) -> None:
        if name in self.tables:
            self.lake.load_table(name).set_properties({key: value})
            self.tables[name].properties[key] = value

    @rule(name=names, new=st.sampled_from(["customer", "client", "buyer"]))
    def rename_the_column(self, name: str, new: str) -> None:
        model = self.tables.get(name)
        if model is None or model.columns[1] == new:
            return
        table = self.lake.load_table(name)
        table.update_schema(with_renamed(table.schema, model.columns[1], new))
        model.columns[1] = new
        model.version += 1

    @rule()
    def recover(self) -> None:
        assert not self.lake.recover().failures

    @rule(seconds=st.sampled_from([1.0, 700.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def same_names(self) -> None:
        if not hasattr(self, "lake"):
            return
        assert self.lake.list_namespaces() == sorted(self.namespaces)
        assert self.lake.list_tables() == sorted(self.tables)
        listed = self.lake.system_table("__tables")
        assert listed.column("table_name").to_pylist() == sorted(self.tables)

    @invariant()
    def same_definitions(self) -> None:
        if not hasattr(self, "lake"):
            return
        for name, model in self.tables.items():
            table = self.lake.load_table(name)
            assert table.version == model.version
            assert [str(each) for each in table.sort_order.fields] == list(model.sort_by)
            assert table.properties == model.properties
            assert table.schema.arrow_schema.names == model.columns
            assert table.history().num_rows == model.version
            assert self.lake.table_meta(name).schema == table.schema

    def _made(self, name: str, table: CatalogTable) -> None:
        assert table.table_id not in self.ids, "an id was given out twice"
        self.ids.add(table.table_id)
        self.tables[name] = ModelTable()
        self.namespaces |= set(with_ancestors(TableName.parse(name).namespace))


TestCatalogAgreesWithModel = CatalogAgreesWithModel.TestCase
# An example is a history of fifty operations, each followed by a look at everything.
TestCatalogAgreesWithModel.settings = settings(max_examples=max(50, settings().max_examples // 8))
