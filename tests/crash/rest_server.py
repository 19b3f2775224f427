"""A server that dies around a commit, before it answers.

python rest_server.py LAKE MOMENT      MOMENT is never, guest, or one of MOMENTS, JOINT_MOMENTS
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import neve
from neve.catalog.catalog_entries import CatalogEntries
from neve.jobs.foreign_commit import ForeignCommit

EXIT_CODE = 9
MOMENTS = ("before", "after")
"""Of a commit to one table."""
JOINT_MOMENTS = ("prepared", "reserved", "decided", "first", "all")
"""Of a commit to several tables; from `decided` on it is committed."""


def dying(owner: type, name: str, *, before: bool = False, call: int = 1) -> None:
    """Let a process die before or after a call of a method."""
    method: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def deadly(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if before and calls == call:
            os._exit(EXIT_CODE)
        found = method(*given, **named)
        if calls == call:
            os._exit(EXIT_CODE)
        return found

    setattr(owner, name, deadly)


def main() -> None:
    lake, moment = sys.argv[1:3]
    with neve.open(lake) as opened, opened.serve() as server:
        match moment:
            case "before" | "after":
                dying(ForeignCommit, "commit", before=moment == "before")
            case "guest":
                dying(CatalogEntries, "move_guests")
            case "prepared":
                dying(ForeignCommit, "reserve", before=True)
            case "reserved":
                dying(CatalogEntries, "decide_joint", before=True)
            case "decided":
                dying(CatalogEntries, "decide_joint")
            case "first":
                dying(ForeignCommit, "commit_prepared")
            case "all":
                dying(CatalogEntries, "forget_joint", before=True)
            case _:
                assert moment == "never"
        print(server.url, flush=True)
        server.wait()


if __name__ == "__main__":
    main()
