"""What an error says: the message, where, and what to do."""

import pytest

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError, NotFound


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidArgument("the location is empty"), "the location is empty"),
        (
            Corruption("checksum mismatch", path="wal/1/000001.wal", offset=11_498),
            "checksum mismatch in wal/1/000001.wal at byte 11,498",
        ),
        (Corruption("checksum mismatch", offset=0), "checksum mismatch at byte 0"),
        (
            Corruption("a manifest of 6 bytes is cut off", path="p", offset=1_000),
            "a manifest of 6 bytes is cut off, in p at byte 1,000",
        ),
        (
            NeveError("the table is at version 2, not 1", path="manifest/version/t1"),
            "the table is at version 2, not 1, in manifest/version/t1",
        ),
        (
            NeveError("could not read an object: Not a directory", path="a/b"),
            "could not read an object: Not a directory, in a/b",
        ),
        (
            LimitExceeded("larger than any log", limit=1, path="log", hint="Write less"),
            "larger than any log in log. Write less",
        ),
        (
            NotFound("there is no table", hint="`neve tables` lists them"),
            "there is no table. `neve tables` lists them",
        ),
        (
            NotFound("the table was dropped", hint="make it again"),
            "the table was dropped; make it again",
        ),
    ],
    ids=range(9),
)
def test_an_error_reads_as_a_sentence(error: NeveError, text: str) -> None:
    assert str(error) == text
