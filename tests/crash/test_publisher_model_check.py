"""Random worlds of processes that publish one table, and mutants they must catch."""

from collections.abc import Callable, Iterable
from unittest.mock import patch

import pytest

from neve.iceberg.metadata_folder import (
    HINT_NAME,
    MetadataFolder,
    MetadataGarbage,
    document_name,
    parse_name,
)
from neve.iceberg.publisher import IcebergPublisher
from neve.iceberg.table_metadata import PublishedHistory
from neve.model.schema_json import JsonObject
from tests.conftest import Record
from tests.crash.manifest_model import on_one_core
from tests.crash.publisher_model import (
    CREWS,
    DROWSY,
    World,
    keep_folders_small,
    violation_of,
)
from tests.gates import Gate

SEEDS_PER_MUTANT = 400


@pytest.fixture(autouse=True)
def _small_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_folders_small(monkeypatch)


def test_no_publisher_takes_a_file_from_a_reader(scoreboard: Record) -> None:
    gate = Gate("R27 worlds of publishers, expiry and kills: violations", 2_000, 2_000)
    told = {"commits": 0, "publishes": 0, "deleted": 0, "looks": 0}

    with on_one_core():
        for seed in gate.seeds():
            world = World(seed)
            broken = violation_of(world)
            gate.cases += 1
            assert broken is None, broken
            for fact in told:
                told[fact] += getattr(world.ledger, fact)

    scoreboard(f"{gate.line()}; {told}")
    assert all(told.values())


def test_one_seed_gives_one_run() -> None:
    for seed in range(2):
        first, second = World(seed), World(seed)
        first.run()
        second.run()

        assert first.interleaving.trace == second.interleaving.trace
        assert first.ledger == second.ledger


# Mutants: each is the real publisher with one rule left out.


class ForgetsWhatOlderDocumentsReach(MetadataGarbage):
    """Keeps what its own document reaches, as 0.1.0 did."""

    def _oldest_snapshots(self, _numbers: Iterable[int]) -> tuple[JsonObject, ...]:
        return ()


class DeletesWhatIsBeingPublished(MetadataGarbage):
    """Takes whatever it does not know for garbage, new as it may be."""

    def collect(self, number: int, history: PublishedHistory, *, kept: int) -> set[str]:
        for name in [*self._folder.sizes()]:
            parsed = parse_name(name)
            if parsed is not None and parsed.number > number and not parsed.is_document:
                self._folder.delete(name)
        return super().collect(number, history, kept=kept)


class ReplacesADocument(MetadataFolder):
    """Writes over the document of another publisher, as 0.1.0 did."""

    def create_document(self, number: int, payload: bytes) -> bool:
        self.objects.put(self._path(document_name(number)), payload)
        return True


class MovesTheHintBack(MetadataFolder):
    """Lets the hint name whatever it wrote last."""

    def move_hint(self, number: int) -> bool:
        path = self._path(HINT_NAME)
        if self.objects.put_if_absent(path, b"%d" % number) is None:
            self.objects.put_if_match(path, b"%d" % number, tag=self.objects.get(path).tag)
        return True


class TakesANumberThatWasFreeAgainForSuccess(MetadataFolder):
    """Believes that a document it created is the newest, though the hint is far ahead."""

    def move_hint(self, number: int) -> bool:
        super().move_hint(number)
        return True


class ReadsTheTableBeforeItLooksWhatIsPublished(IcebergPublisher):
    """Publishes a table that may be older than what the document before it says."""

    def _bring_up_to_date(self, *, is_checked: bool = False, is_trusted: bool = True) -> bool:
        early = self._versions.store.read()
        with patch.object(self._versions.store, "read", lambda: early):
            return super()._bring_up_to_date(is_checked=is_checked, is_trusted=is_trusted)


def drawn_worlds(seed: int) -> World:
    return World(seed)


def drowsy_worlds(seed: int) -> World:
    return World(seed, weather=DROWSY, crew=CREWS[-1])


@pytest.mark.parametrize(
    ("place", "mutant", "worlds"),
    [
        ("neve.iceberg.publisher.MetadataGarbage", ForgetsWhatOlderDocumentsReach, drawn_worlds),
        ("neve.iceberg.publisher.MetadataGarbage", DeletesWhatIsBeingPublished, drawn_worlds),
        ("neve.iceberg.publisher.MetadataFolder", ReplacesADocument, drawn_worlds),
        ("neve.iceberg.publisher.MetadataFolder", MovesTheHintBack, drawn_worlds),
        (
            "neve.iceberg.publisher.MetadataFolder",
            TakesANumberThatWasFreeAgainForSuccess,
            drowsy_worlds,
        ),
        (
            "neve.catalog.stored_table.IcebergPublisher",
            ReadsTheTableBeforeItLooksWhatIsPublished,
            drowsy_worlds,
        ),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_publisher_with_one_rule_left_out_is_caught(
    place: str,
    mutant: type,
    worlds: Callable[[int], World],
    monkeypatch: pytest.MonkeyPatch,
    scoreboard: Record,
) -> None:
    monkeypatch.setattr(place, mutant)

    with on_one_core():
        caught = next(
            (seed for seed in range(SEEDS_PER_MUTANT) if violation_of(worlds(seed))), None
        )

    assert caught is not None
    scoreboard(f"R6 publisher mutant {mutant.__name__}: caught in world {caught}")
