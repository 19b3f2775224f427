"""Versions and edits: what a Version knows of the order of its files."""

from dataclasses import replace

from neve.model.data_file import DataFile
from neve.model.version import FileOrder, Operation, Version, VersionEdit, VersionFacts, apply_edit

FACTS = VersionFacts(operation=Operation.APPEND, timestamp_ms=0, schema_id=0, spec_id=0)


def file(name: str, key: bytes, *, level: int = 1) -> DataFile:
    return DataFile(path=name, file_bytes=1, row_count=1, level=level, key_min=key, key_max=key)


def made_of(*files: DataFile) -> Version:
    return apply_edit(None, VersionEdit(base=0, facts=FACTS, added=files))


def test_the_order_after_an_edit_is_that_of_its_files() -> None:
    version = made_of(file("a", b"1"), file("b", b"3"), file("young", b"2", level=0))

    edit = VersionEdit(base=1, facts=FACTS, added=(file("c", b"2"),), removed=("a",))
    after = apply_edit(version, edit)

    assert after.key_order == FileOrder.of(after.files.values())
    assert list(after.key_order.adjacent()) == [("c", "b")]


def test_a_version_with_other_files_has_another_order() -> None:
    version = made_of(file("a", b"1"), file("b", b"3"))
    assert list(version.key_order.adjacent()) == [("a", "b")]

    copy = replace(version, files={"b": file("b", b"3"), "c": file("c", b"4")})

    assert list(copy.key_order.adjacent()) == [("b", "c")]


def test_an_order_that_is_known_makes_no_difference_between_versions() -> None:
    version = made_of(file("a", b"1"))
    bare = Version(number=1, parent=None, facts=FACTS, files=dict(version.files))

    assert bare == version
    assert repr(bare) == repr(version)
    assert bare.key_order == version.key_order
    assert bare.key_order is bare.key_order
