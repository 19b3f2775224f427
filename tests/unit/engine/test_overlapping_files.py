"""Which files are compared with each other when a table is verified."""

from dataclasses import replace
from random import Random

from neve.engine.verification import _overlaps
from neve.model.version import apply_edit
from tests.unit.catalog.builders import a_file, an_append


def test_files_that_overlap_are_compared_in_one_group_and_others_not_at_all() -> None:
    rng = Random(7)
    for _ in range(50):
        files = []
        for number in range(rng.randint(0, 12)):
            first, last = sorted((rng.randrange(20), rng.randrange(20)))
            files.append(
                replace(a_file(str(number)), key_min=bytes([first]), key_max=bytes([last]))
            )
        version = apply_edit(None, an_append(0, *files))

        groups = [
            {check.file.path, *(other.path for other in check.others)}
            for check in _overlaps(version)
        ]

        grouped = [path for group in groups for path in group]
        assert len(grouped) == len(set(grouped))
        together = {path: number for number, group in enumerate(groups) for path in group}
        for place, left in enumerate(files):
            others = [
                right
                for right in files[:place] + files[place + 1 :]
                if left.key_min <= right.key_max and right.key_min <= left.key_max
            ]
            assert {together[each.path] for each in others} <= {together.get(left.path)}
            assert (left.path in together) == bool(others)
