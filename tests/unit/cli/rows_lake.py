"""A warehouse in memory with a table of orders, and commands on it, for tests of commands."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
from click.testing import CliRunner, Result

import neve
from neve.cli.main import cli
from neve.engine.table_options import TableOptions
from neve.model.arrow_types import ArrowField
from tests.unit.sstable.data_files import arrow_schema

_FIELDS: list[ArrowField] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("customer", pa.string()),
    pa.field("amount", pa.decimal128(9, 2)),
]
ORDERS = pa.schema(_FIELDS)
VISITS = arrow_schema(name=pa.string(), day=pa.date32(), pages=pa.int32())


Terminal = Callable[[int], None]
"""Lets commands see a terminal of so many columns."""

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def plain_lines(text: str) -> list[str]:
    """Return what a terminal shows, without colours."""
    return _STYLES.sub("", text).splitlines()


class RowsLake:
    """Runs `neve` on a warehouse of its own."""

    def __init__(self, location: str | None = None) -> None:
        self.location = location or f"memory://{uuid4()}"

    def create(self, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
        with neve.open(self.location) as lake:
            lake.create_table(name, schema, key).close()

    def orders(self, *rows: tuple[int, str | None, str | None]) -> "RowsLake":
        """Make the table shop.orders with some rows."""
        self.create("shop.orders", ORDERS, ["id"])
        lines = [
            json.dumps({"id": key, "customer": customer, "amount": amount})
            for key, customer, amount in rows
        ]
        if lines:
            self.ok("put", "shop.orders", "-", stdin="\n".join(lines))
        return self

    def flushes(self, batches: Sequence[Sequence[Mapping[str, object]]]) -> None:
        """Flush batches of orders one after the other; nothing is compacted meanwhile."""
        with (
            neve.open(self.location) as lake,
            lake.table("shop.orders", options=TableOptions(background=False)) as table,
        ):
            for batch in batches:
                table.upsert(batch)
                table.flush()

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--lake", self.location], input=stdin)

    def ok(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """Run a command that succeeds; gives what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> Any:  # noqa: ANN401
        """Run a command with `--json`; gives the document."""
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def rows(self, name: str = "shop.orders") -> list[dict[str, Any]]:
        """Return all rows in the order of their keys."""
        found: list[dict[str, Any]] = self.json("scan", name, "--key-range", "", "")["rows"]
        return found
