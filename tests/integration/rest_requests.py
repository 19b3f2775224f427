"""A lake behind its server, and requests to it as any HTTP client sends them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa

import neve
from neve.catalog.running_server import RunningServer


def schema_of(*fields: "pa.Field[Any]") -> pa.Schema:
    return pa.schema(fields)


SCHEMA = schema_of(
    pa.field("id", pa.int64(), nullable=False),
    pa.field("city", pa.string()),
    pa.field("amount", pa.float64()),
)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the server said
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Code and type of the error model; the code is that of the status, too."""
        found = self.json["error"]
        assert found["code"] == self.status
        assert found["message"]
        return self.status, found["type"]


class Client:
    """Sends single requests to a server."""

    def __init__(self, server: RunningServer, token: str | None = None) -> None:
        self._address = server.url.removeprefix("http://")
        self._token = token

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        connection = HTTPConnection(self._address, timeout=60)
        given = dict(headers or {})
        if self._token is not None:
            given["Authorization"] = f"Bearer {self._token}"
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, body=payload, headers=given)
            found = connection.getresponse()
            return Reply(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path: str, body: object, **headers: str) -> Reply:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        return self.send("POST", path, body, headers=named)


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[tuple[neve.Lake, Client, RunningServer]]:  # noqa: ANN401
    """Serve a lake on loopback."""
    with neve.open(folder) as lake, lake.serve(**options) as server:
        yield lake, Client(server), server


def make_orders(lake: neve.Lake, name: str = "shop.orders", **given: Any) -> neve.Table:  # noqa: ANN401
    """Create a table with a few flushed rows."""
    given.setdefault("properties", {"format-version": "2"})
    table = lake.create_table(name, SCHEMA, primary_key=["id"], **given)
    table.upsert([{"id": i, "city": f"c{i % 3}", "amount": float(i)} for i in range(30)])
    table.flush()
    return table


def orders(rows: Mapping[int, str]) -> pa.Table:
    """Return rows to write, by id."""
    return pa.Table.from_pylist(
        [{"id": key, "city": city, "amount": 1.0} for key, city in rows.items()], schema=SCHEMA
    )


def cities(table: neve.Table) -> dict[int, str]:
    """Return what a table has, by id, after looking again."""
    rows = table.refresh().scan(columns=["id", "city"]).to_arrow().to_pylist()
    found = {row["id"]: row["city"] for row in rows}
    assert len(found) == len(rows), "each key has one row"
    return found
