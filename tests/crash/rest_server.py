"""A server that dies: after adopting a commit and before answering, or before committing at all.

python rest_server.py LAKE MOMENT      MOMENT is before, after or never
"""

import os
import sys

import neve
from neve.jobs.foreign_commit import ForeignCommit

EXIT_CODE = 9


def main() -> None:
    lake, moment = sys.argv[1:3]
    commit = ForeignCommit.commit

    def deadly(self: ForeignCommit, *given: object, **named: object) -> object:
        if moment == "before":
            os._exit(EXIT_CODE)
        outcome = commit(self, *given, **named)  # type: ignore[arg-type]
        if moment == "after":
            os._exit(EXIT_CODE)
        return outcome

    ForeignCommit.commit = deadly  # type: ignore[method-assign,assignment]
    with neve.open(lake) as opened, opened.serve() as server:
        print(server.url, flush=True)
        server.wait()


if __name__ == "__main__":
    main()
