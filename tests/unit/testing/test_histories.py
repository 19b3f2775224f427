"""The checker of histories: it finds every anomaly that is planted, and no others."""

import pytest

from neve.testing.histories import History, Outcome, Transaction

Lists = dict[str, list[int]]


def tx(
    name: str,
    reads: Lists | None = None,
    appends: Lists | None = None,
    *,
    outcome: Outcome = Outcome.COMMITTED,
    client: str | None = None,
) -> Transaction:
    return Transaction(
        name=name,
        client=client or name,
        outcome=outcome,
        reads=reads or {},
        appends=appends or {},
    )


GOOD = [
    tx("1", {"x": []}, {"x": [1]}),
    tx("2", {"x": [1], "y": []}, {"x": [2], "y": [20]}),
    tx("3", {"x": [1, 2], "y": [20]}),
    tx("4", {"x": [1, 2]}, {"x": [3]}, outcome=Outcome.REFUSED),
    tx("5", {"x": [1, 2]}, {"x": [4], "y": [40]}, outcome=Outcome.UNKNOWN),
]


def test_a_good_history_has_no_anomaly() -> None:
    for last in ({"x": [1, 2], "y": [20]}, {"x": [1, 2, 4], "y": [20, 40]}):
        for serializable in (False, True):
            assert History(GOOD, last).anomalies(serializable=serializable) == []


@pytest.mark.parametrize(
    ("planted", "last", "word"),
    [
        ([tx("r", {"x": [9]}), tx("9", {}, {"x": [9]}, outcome=Outcome.REFUSED)], {}, "dirty"),
        ([tx("9", {}, {"x": [9]})], {"x": []}, "lost"),
        ([tx("9", {}, {"x": [9]}, outcome=Outcome.REFUSED)], {"x": [9]}, "refused"),
        ([tx("9", {}, {"x": [9], "y": [8]}, outcome=Outcome.UNKNOWN)], {"x": [9]}, "by half"),
        ([tx("9", {}, {"x": [1, 2]}), tx("r", {"x": [1]})], {"x": [1, 2]}, "a part"),
        (
            [tx("1", {}, {"x": [1]}), tx("2", {}, {"x": [2]}), tx("r", {"x": [2]})],
            {"x": [1, 2]},
            "beginning",
        ),
        ([], {"x": [5]}, "no transaction"),
        ([tx("1", {}, {"x": [1]})], {"x": [1, 1]}, "twice"),
        # Both read nothing and wrote: the first update is lost to the second.
        ([tx("1", {"x": []}, {"x": [1]}), tx("2", {"x": []}, {"x": [2]})], {"x": [1, 2]}, "cycle"),
        # Read skew: x from before a transaction, y from after it.
        (
            [tx("1", {}, {"x": [1], "y": [2]}), tx("r", {"x": [], "y": [2]})],
            {"x": [1], "y": [2]},
            "cycle",
        ),
        # A client that does not see what it wrote before.
        (
            [tx("1", {}, {"x": [1]}, client="c"), tx("2", {"x": []}, {"y": [1]}, client="c")],
            {"x": [1], "y": [1]},
            "cycle",
        ),
        # Read skew by way of a third transaction, which read one and wrote the other.
        (
            [
                tx("1", {}, {"x": [1]}),
                tx("2", {"x": [1]}, {"y": [2]}),
                tx("r", {"x": [], "y": [2]}),
            ],
            {"x": [1], "y": [2]},
            "cycle",
        ),
    ],
)
def test_a_planted_anomaly_is_found(planted: list[Transaction], last: Lists, word: str) -> None:
    for serializable in (False, True):
        found = History(planted, last).anomalies(serializable=serializable)
        assert found
        assert any(word in each for each in found)


def test_write_skew_is_an_anomaly_only_if_serializable() -> None:
    skew = [tx("1", {"x": [], "y": []}, {"x": [1]}), tx("2", {"x": [], "y": []}, {"y": [2]})]
    history = History(skew, {"x": [1], "y": [2]})

    assert history.anomalies(serializable=False) == []
    assert "cycle" in history.anomalies(serializable=True)[0]
