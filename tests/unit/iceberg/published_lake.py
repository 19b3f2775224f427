"""A small table that is published, and what its folder holds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

import neve
from neve import TableOptions
from neve.catalog.lake import Lake
from neve.catalog.table import Table

BY_HAND = TableOptions(
    background=False,
    level0_files=1_000,
    level0_files_slow=1_000,
    level0_files_max=1_000,
    garbage_ratio=1.0,
)
_FIELDS: list["pa.Field[pa.DataType]"] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string()),
]
SCHEMA = pa.schema(_FIELDS)


class PublishedLake:
    """The table shop.orders in a directory, committed and published by hand."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.lake: Lake = neve.open(folder)
        self.table: Table = self.lake.create_table(
            "shop.orders",
            schema=SCHEMA,
            primary_key=["id"],
            properties={name.replace("_", "-"): value for name, value in properties.items()},
            options=BY_HAND,
        )

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, **properties: str) -> Iterator["PublishedLake"]:
        """Make a table that is closed at the end."""
        lake = cls(folder, **properties)
        try:
            yield lake
        finally:
            lake.close()

    @property
    def metadata(self) -> Path:
        return next(self.folder.glob("tables/*/metadata"))

    def commit(self, *keys: int, name: str = "a") -> int:
        """Write rows as one Version."""
        self.table.upsert([{"id": key, "name": name} for key in keys])
        return self.table.flush()

    def document(self, number: int | None = None) -> dict[str, Any]:
        """Return a published document, by default the one that the hint names."""
        if number is None:
            number = int((self.metadata / "version-hint.text").read_text())
        found: dict[str, Any] = json.loads(
            (self.metadata / f"v{number}.metadata.json").read_bytes()
        )
        return found

    @property
    def newest(self) -> Path:
        """The document that the hint names."""
        return self.metadata / f"v{(self.metadata / 'version-hint.text').read_text()}.metadata.json"

    def names(self, pattern: str) -> set[str]:
        return {path.name for path in self.metadata.glob(pattern)}

    def reopen(self) -> None:
        """Open the table again, as another process would."""
        self.close()
        self.lake = neve.open(self.folder)
        self.table = self.lake.table("shop.orders", options=BY_HAND)

    def close(self) -> None:
        self.table.close()
        self.lake.close()

    def read(self, location: str | None = None, version: int | None = None) -> list[int]:
        """Return the keys that PyIceberg reads, of the current snapshot or that of a Version."""
        static = StaticTable.from_metadata(location or self.table.iceberg_metadata())
        rows = static.scan(snapshot_id=version).to_arrow()
        return sorted(int(key) for key in rows.column("id").to_numpy())
