"""Workers that create, rename and drop tables at once, each writing down what it was told.

As a program it is one worker: it opens the warehouse named on its command line, says `ready`, waits
for a line, works, and prints its ledger as JSON.
"""

import json
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import neve
from neve.catalog.kv_catalog import KVCatalog
from neve.errors import AlreadyExists, CatalogConflict, NotFound
from tests.unit.catalog.builders import ORDERS


@dataclass
class Ledger:
    """What one worker was told."""

    created: list[str] = field(default_factory=list)
    """Ids of tables it made."""
    renamed: list[str] = field(default_factory=list)
    """Names it gave."""
    dropped: list[str] = field(default_factory=list)
    """Names of which it dropped the table."""


def work(lake: KVCatalog, me: int, rounds: int) -> Ledger:
    """Fight over names with the other workers."""
    ledger = Ledger()
    for number in range(rounds):
        # Nobody else wants these names.
        ledger.created.append(lake.create_table(f"own{me}.t{number}", ORDERS, ["id"]).table_id)
        lake.rename_table(f"own{me}.t{number}", f"done.w{me}_t{number}")
        ledger.renamed.append(f"done.w{me}_t{number}")
        # Everybody wants this one.
        with suppress(AlreadyExists):
            ledger.created.append(lake.create_table(f"shared.t{number}", ORDERS, ["id"]).table_id)
        if me % 2:
            with suppress(NotFound, CatalogConflict):
                lake.rename_table(f"shared.t{number}", f"won.w{me}_t{number}")
                ledger.renamed.append(f"won.w{me}_t{number}")
        else:
            with suppress(NotFound):
                lake.drop_table(f"shared.t{number}", purge=True)
                ledger.dropped.append(f"shared.t{number}")
    return ledger


def check(lake: KVCatalog, ledgers: list[Ledger]) -> str:
    """Compare what the workers were told with what is there; gives the figures."""
    created = [table_id for ledger in ledgers for table_id in ledger.created]
    renamed = [name for ledger in ledgers for name in ledger.renamed]
    dropped = [name for ledger in ledgers for name in ledger.dropped]
    alive = dict(lake._entries.state().tables)

    assert not [table_id for table_id, times in Counter(created).items() if times > 1]
    assert set(alive.values()) <= set(created), "a table nobody made"
    assert len(alive) == len(created) - len(dropped), "a table was lost, or dropped twice"
    assert set(renamed) <= set(alive), "a table that was renamed is gone"
    assert lake.list_tables() == sorted(alive)
    ordinals = sorted(int(table_id[1:].partition("-")[0]) for table_id in created)
    assert ordinals == list(range(1, len(created) + 1))
    for name, table_id in alive.items():
        table = lake.load_table(name)
        assert (table.table_id, table.version) == (table_id, 1)
    for table_id in set(created) - set(alive.values()):
        assert lake._stores.stored_table(table_id).versions.head().dropped
    assert not lake._entries.announcements()
    return f"{len(created)} created, {len(renamed)} renamed, {len(dropped)} dropped"


def main() -> None:
    location, me, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lake = neve.open(location)
    print("ready", flush=True)
    sys.stdin.readline()
    ledger = work(lake, me, rounds)
    print(json.dumps(vars(ledger)), flush=True)


if __name__ == "__main__":
    main()
