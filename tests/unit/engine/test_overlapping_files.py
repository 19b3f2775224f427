"""Which files are compared with each other when a table is verified."""

from dataclasses import replace
from random import Random

from neve.engine.verification import _overlapping
from neve.model.version import apply_edit
from tests.unit.catalog.builders import a_file, an_append


def test_files_that_overlap_are_in_one_group_and_groups_are_apart() -> None:
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

        groups = [{file.path for file in group} for group in _overlapping(version)]

        assert sorted(path for group in groups for path in group) == sorted(version.files)
        assert all(any(pair <= group for group in groups) for pair in expected)
        for group in groups:
            # Each file of it overlaps with one that is reached from the first.
            reached = {min(group)} if group else set()
            while more := {path for pair in expected if pair & reached for path in pair} - reached:
                reached |= more
            assert reached == group
