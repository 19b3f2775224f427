"""The change events of the demo's pipeline, as files of JSON lines, and the table they lead to.

orders/     the first rows, one file
updates/    rows that come later, new and old ones; one of each key
changes/    raw events: new amounts, new orders, cancellations; several of one key, some lines torn
stream/     rows that arrive later, a file for each few hundred

Every event follows from its number, so that the table they lead to is known without Spark.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "customer": pa.string(),
    "amount": pa.float64(),
    "ts": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
}
SCHEMA: Final = pa.schema(_COLUMNS)
ORDERS: Final = 20_000
UPDATES: Final = 2_000
EVENTS: Final = 8_000
BROKEN: Final = 40
STREAMED: Final = 2_000
STREAM_FILES: Final = 4
LIVE_FROM: Final = 1_000_000
"""First number of the orders that are written live, beside Spark."""

_DAYS: Final = 4
_CUSTOMERS: Final = 500
_CANCELS_EACH: Final = 10
# Coprime to the number of orders: events come back to an order now and then.
_STRIDE: Final = 7_919

Order = dict[str, object]


def order(number: int, seq: int) -> Order:
    """Return an order as it is after an event."""
    return {
        "id": number,
        "customer": f"customer {number % _CUSTOMERS}",
        "amount": (number * 7 + seq) % 10_000 / 4,
        "ts": f"2026-03-{1 + number % _DAYS:02}T{seq % 24:02}:00:00Z",
        "seq": seq,
    }


class EventFiles:
    """Writes the events, and knows how many orders they leave and what these amount to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._left: dict[int, Order] = {}

    @property
    def order_count(self) -> int:
        """Orders that are left."""
        return len(self._left)

    @property
    def amount(self) -> float:
        """What they amount to; exact, as all amounts are quarters."""
        return sum(float(str(each["amount"])) for each in self._left.values())

    def write(self) -> None:
        """Write all files."""
        first = [order(number, number) for number in range(ORDERS)]
        self._put(first)
        self._write("orders/orders.json", first)
        # Half of them are new.
        updates = [order(ORDERS - UPDATES // 2 + place, ORDERS + place) for place in range(UPDATES)]
        self._put(updates)
        self._write("updates/updates.json", updates)
        first_change = ORDERS + UPDATES
        self._write_changes(range(first_change, first_change + EVENTS))
        share = STREAMED // STREAM_FILES
        for file in range(STREAM_FILES):
            begin = first_change + EVENTS + file * share
            rows = [order(seq * _STRIDE % (2 * ORDERS), seq) for seq in range(begin, begin + share)]
            self._put(rows)
            self._write(f"stream/{file:04}.json", rows)

    def add_live(self, rows: Iterable[Order]) -> None:
        """Count rows that were written beside Spark."""
        self._put(rows)

    def _write_changes(self, numbers: range) -> None:
        lines = []
        for seq in numbers:
            changed = order(seq * _STRIDE % (ORDERS + EVENTS // 4), seq)
            is_cancelled = seq % _CANCELS_EACH == 0
            lines.append(json.dumps({"op": "cancel" if is_cancelled else "upsert", **changed}))
            if is_cancelled:
                self._left.pop(int(str(changed["id"])), None)
            else:
                self._put([changed])
        every = len(lines) // BROKEN
        torn = [line[: len(line) // 2] for line in lines[::every]][:BROKEN]
        path = self.root / "changes" / "changes.json"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([*lines, *torn]) + "\n")

    def _put(self, rows: Iterable[Order]) -> None:
        self._left |= {int(str(row["id"])): row for row in rows}

    def _write(self, name: str, rows: Iterable[Order]) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
