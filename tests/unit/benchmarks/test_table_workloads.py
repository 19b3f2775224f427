"""The table workloads run with their candidates, and a wrong answer of a store is noticed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.harness import BEST_PEER, Kind, run_workload
from benchmarks.peer_environment import PYPAIMON, PeerEnvironment
from benchmarks.peers.table_key_value import decode_pairs, encode_rows
from benchmarks.peers.table_rows import SCHEMA, digest, row_tuples, rows_of_tuples
from benchmarks.report import terminal_table
from benchmarks.run import main
from benchmarks.table_sample import (
    CHANGE_WINDOW,
    TableSample,
    grown_rows,
    make_changes,
    of_keys,
)
from benchmarks.table_session import (
    DELTA,
    PAIMON,
    PYICEBERG,
    SQLITE,
    TableScale,
    TableSession,
    left_out,
)
from benchmarks.table_suite import (
    GROWTH_WORKLOADS,
    HISTORY_WORKLOADS,
    TABLE_WORKLOADS,
    growth_scale,
)

WORKLOADS = {**TABLE_WORKLOADS, **HISTORY_WORKLOADS, **GROWTH_WORKLOADS}
TINY = TableScale(
    rows=20_000,
    unflushed_rows=2_000,
    put_seconds=0.02,
    synced_seconds=0.02,
    read_seconds=0.01,
    growth_rows=(10_000,),
    growth_columns=(10, 20),
    growth_files=(4, 8),
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableSession]:
    """Yield neve and one peer that needs no other environment."""
    session = TableSession(tmp_path_factory.mktemp("tables") / "tables", TINY, chosen=(SQLITE,))
    yield session
    session.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> TableSample:
    return TableSample.make(tmp_path_factory.mktemp("sample") / "sample", 1_000)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_candidate_gives_the_right_answer(
    session: TableSession, tmp_path: Path, name: str
) -> None:
    workload = replace(WORKLOADS[name](session), rounds_factor=1, uses_disk=False)

    record = run_workload(
        workload, rounds=1, directory=tmp_path, progress=lambda _line: None, rounds_min=1
    )

    assert record["candidates"][0]["kind"] == Kind.NEVE
    assert all(candidate["rate"]["minimum"] > 0 for candidate in record["candidates"])
    assert all(ratio["ratio"]["minimum"] > 0 for ratio in record["ratios"])
    assert "neve" in terminal_table(record)


def test_the_best_peer_is_named_once_all_have_run(session: TableSession, tmp_path: Path) -> None:
    workload = replace(TABLE_WORKLOADS["table_put"](session), uses_disk=False)

    record = run_workload(
        workload, rounds=1, directory=tmp_path, progress=lambda _line: None, rounds_min=1
    )

    [ratio] = record["ratios"]
    assert ratio["to"] == f"SQLite ({BEST_PEER})"


def test_peers_without_their_environment_are_left_out_and_the_page_names_each(
    tmp_path: Path,
) -> None:
    session = TableSession(
        tmp_path / "tables",
        TINY,
        chosen=(SQLITE, DELTA, PYICEBERG, PAIMON),
        environment=lambda name: PeerEnvironment(tmp_path / "nowhere", name),
    )

    assert session.peers(SQLITE, DELTA, PYICEBERG, PAIMON) == [SQLITE]
    assert left_out(session) == [
        "delta-rs, PyIceberg did not take part: `.venv-peers` could not be made.",
        "pypaimon did not take part: `.venv-pypaimon` could not be made.",
    ]


def test_each_peer_waits_for_its_own_environment_only(tmp_path: Path) -> None:
    (tmp_path / "requirements-pypaimon.lock").write_text("# nobody\n")
    assert PeerEnvironment(tmp_path, PYPAIMON).prepare(lambda _line: None)
    session = TableSession(
        tmp_path / "tables",
        TINY,
        chosen=(DELTA, PAIMON),
        environment=lambda name: PeerEnvironment(tmp_path, name),
    )

    assert session.peers(DELTA, PAIMON) == [PAIMON]


def test_a_digest_sees_values_and_not_chunks_or_order(sample: TableSample) -> None:
    rows = sample.base
    turned = pa.concat_tables([rows.slice(400), rows.slice(0, 400)])

    assert digest(turned) == digest(rows)
    assert digest(turned, in_order=True) != digest(rows, in_order=True)


@pytest.mark.parametrize("name", ["id", "name", "score", "visits", "payload"])
def test_a_digest_sees_one_wrong_value(sample: TableSample, name: str) -> None:
    wrong: dict[str, object] = {
        "id": 1,
        "name": "x",
        "score": -1.0,
        "visits": -1,
        "payload": bytes(100),
    }
    rows = sample.base.to_pylist()
    rows[7][name] = wrong[name]

    assert digest(pa.Table.from_pylist(rows, schema=sample.base.schema)) != digest(sample.base)


def test_a_digest_sees_where_a_text_ends(sample: TableSample) -> None:
    first, second, *rest = row_tuples(sample.base.slice(0, 10))
    joined = [(*first[:1], first[1] + second[1][:1], *first[2:])]
    joined += [(*second[:1], second[1][1:], *second[2:])]

    moved = rows_of_tuples([*joined, *rest])

    assert digest(moved, in_order=True) != digest(sample.base.slice(0, 10), in_order=True)


def test_keys_and_values_hold_all_of_a_row(sample: TableSample) -> None:
    keys, values = zip(*encode_rows(sample.base), strict=True)

    assert decode_pairs(keys, values).equals(sample.base.combine_chunks())


def test_expected_rows_come_in_the_order_of_their_keys(sample: TableSample) -> None:
    found = of_keys(sample.base, sample.keys[:5])

    assert found.column("id").to_pylist() == sample.keys[:5]


def test_changes_are_expected_in_their_own_order(sample: TableSample) -> None:
    rows = {row["id"]: row for row in sample.base.to_pylist()}
    expected = dict(rows)
    for change in sorted(sample.changes.to_pylist(), key=lambda change: int(change["lsn"])):
        row = {name: change[name] for name in SCHEMA.names}
        if change["op"] == "d":
            expected.pop(row["id"], None)
        else:
            expected[row["id"]] = row

    assert sample.applied() == digest(pa.Table.from_pylist(list(expected.values()), SCHEMA))
    assert sample.applied() != sample.upserted()
    assert set(sample.changes["op"].to_pylist()) == {"c", "u", "d"}
    assert len(expected) not in {len(rows), sample.changes.num_rows}


def test_changes_are_out_of_order_within_a_batch_only() -> None:
    ids = np.arange(100_000) * 2

    order = make_changes(ids, np.random.default_rng(1))["lsn"].to_numpy()

    halves = order[:CHANGE_WINDOW], order[CHANGE_WINDOW:]
    assert halves[0].max() < halves[1].min()
    assert not np.array_equal(np.sort(halves[0]), halves[0])


def test_grown_rows_have_every_id_once() -> None:
    parts = [grown_rows(at, at + 100, rows=1_000) for at in range(0, 1_000, 100)]

    ids = pa.concat_tables(parts).sort_by("id").column("id")

    assert ids.to_pylist() == list(range(0, 2_000, 2))


def test_tables_smaller_than_a_batch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEVE_BENCH_ROWS", "5")
    # Nothing is fetched for it.
    monkeypatch.setattr(PeerEnvironment, "prepare", lambda _self, _say: False)

    with pytest.raises(SystemExit, match="less than a batch"):
        main(["--quick", "--only", "table_put"])


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (100_000, (10_000, 100_000)),
        (10_000_000, (1_000_000, 10_000_000)),
        (100_000_000, (1_000_000, 10_000_000, 100_000_000)),
    ],
)
def test_growth_is_looked_at_in_powers_of_ten(rows: int, sizes: tuple[int, ...]) -> None:
    assert growth_scale(rows, quick=False).growth_rows == sizes
