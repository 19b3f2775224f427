"""Which files are compared with each other when a table is verified."""

from dataclasses import replace
from random import Random

from neve.engine.verification import _overlaps
from neve.model.version import apply_edit
from tests.unit.catalog.builders import a_file, an_append


def test_each_pair_of_files_that_overlap_is_compared_once() -> None:
    rng = Random(7)
    for _ in range(50):
        files = []
        for number in range(rng.randint(0, 12)):
            first, last = sorted((rng.randrange(20), rng.randrange(20)))
            files.append(
                replace(a_file(str(number)), key_min=bytes([first]), key_max=bytes([last]))
            )
        expected = {
            frozenset((left.path, right.path))
            for place, left in enumerate(files)
            for right in files[place + 1 :]
            if left.key_min <= right.key_max and right.key_min <= left.key_max
        }
        version = apply_edit(None, an_append(0, *files))

        pairs = [
            frozenset((check.file.path, other.path))
            for check in _overlaps(version)
            for other in check.others
        ]

        assert set(pairs) == expected
        assert len(pairs) == len(expected)
