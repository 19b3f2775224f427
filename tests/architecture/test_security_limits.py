"""The limits that SECURITY.md states are those that the code has."""

import re
from pathlib import Path
from typing import Final

import pytest

from neve.catalog import known_properties, table_name
from neve.inspect import decoder_process
from neve.jobs import foreign_commit
from neve.manifest import documents as frame
from neve.manifest import json_document, leases, mrub, state
from neve.model import arrow_types, schema_json
from neve.server import http_app
from neve.storage import cloud_store, local_store, table_paths
from neve.wal import record_format

ROOT: Final = Path(__file__).resolve().parents[2]
UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "hours": 3_600}

LIMITS: Final = {
    "a log record": (record_format.RECORD_BYTES_MAX,),
    "an object that is read whole": (local_store.OBJECT_BYTES_MAX,),
    "on disk or in a bucket": (cloud_store.OBJECT_BYTES_MAX,),
    "an object of a manifest store": (frame.FRAME_BYTES_MAX,),
    "the manifest of one Version": (mrub.MRUB_BYTES_MAX,),
    "a JSON document": (json_document.DOCUMENT_BYTES_MAX,),
    "the JSON of a schema": (schema_json.SCHEMA_JSON_BYTES_MAX,),
    "nesting of a column's type": (arrow_types.NESTING_MAX,),
    "the properties of a table": (known_properties.PROPERTIES_BYTES_MAX,),
    "a table's full name": (table_name.NAME_BYTES_MAX, table_name.NAME_PARTS_MAX),
    "a path in a store": (table_paths.PATH_BYTES_MAX, table_paths.SEGMENT_BYTES_MAX),
    "transactions a store remembers": (state.RECENT_TRANSACTIONS_MAX,),
    "the head of a request": (
        http_app.ServerLimits().head_bytes,
        int(http_app.ServerLimits().head_seconds),
    ),
    "connections to the server": (http_app.ServerLimits().connections,),
    "the body of a request": (http_app.ServerLimits().body_bytes,),
    "the files that a commit of another engine adds": (foreign_commit.FOREIGN_BYTES_MAX,),
    "decoding a file of others": (decoder_process.MEMORY_BYTES,),
    "the time of a lease": (leases.LEASE_SECONDS_MAX,),
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_stated_limit_is_the_one_in_force(what: str) -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    (row,) = [line for line in text.splitlines() if line.startswith("| ") and what in line]
    stated = re.findall(r"([0-9,]+) ?([A-Za-z]*)", row.split("|")[2])

    assert tuple(int(n.replace(",", "")) * UNITS.get(unit, 1) for n, unit in stated) == LIMITS[what]
