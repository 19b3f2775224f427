"""Tables with an order column or with merge functions against a model, beside other committers."""

from typing import Final

import pytest

from neve.storage.memory_store import MemoryStore
from tests.property.ruled_machine import Machine, drawn_steps, flush

SEEDS: Final = 4
OPERATIONS: Final = 70


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_table_with_rules_shows_what_its_model_shows(seed: int) -> None:
    machine = Machine(seed, MemoryStore())
    names: list[str] = []
    try:
        for step in drawn_steps(machine, OPERATIONS):
            names.append(step.__name__)
            step(machine)
            machine.check()
        flush(machine)
        machine.check()
        assert not machine.table.verify().problems
    except BaseException as error:
        error.add_note(f"after {names[-12:]}")
        raise
    finally:
        machine.lake.close()
