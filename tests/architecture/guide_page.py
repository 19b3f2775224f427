"""A page of the documentation as a program: its blocks are run in order, and print what they show.

1. A block of `python` or `bash` is run, all blocks of a page in one directory. Blocks of Python
   share their names, as if they were typed into one session; each block of bash is a shell.
2. A block of `text` right behind one of these is what it prints. `…` in a line stands for what
   differs from run to run, a line of `…` alone for any number of lines.
3. A block that prints and does not show it is an error: a reader would not know what to expect.
4. Any other block is not run, and the line above it says why: `Not run here: …`.

    python guide_page.py PAGE               runs a page in the current directory
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from types import CodeType
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = [DOCS / "why.md", DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md"))]
SPARK: Final = "ns.session()"
"""Pages that say this are run in the session that the tests of Spark share."""
RUN_LANGUAGES: Final = frozenset({"python", "bash"})
OUTPUT: Final = "text"
NOT_RUN: Final = "Not run here: "
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BEHIND: Final = 400


def page_id(path: Path) -> str:
    """Return the name of a page as the navigation has it."""
    return str(path.relative_to(DOCS))


class PageError(Exception):
    """A block did something else than its page says."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block that is run."""

    line: int
    language: str
    source: str
    shown: str | None = None
    """What the page says that it prints; None when it says nothing."""


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the blocks of a page that are run, each with what it has to print."""
    waiting: Block | None = None
    end = 0
    for fence in _FENCE.finditer(text):
        language, source = fence[1], fence[2]
        line = text.count("\n", 0, fence.start()) + 1
        between, end = text[end : fence.start()], fence.end()
        if language == OUTPUT:
            if waiting is None or between.strip():
                raise PageError(f"line {line}: this output belongs to no block right above it")
            yield replace(waiting, shown=source)
            waiting = None
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        if language in RUN_LANGUAGES:
            waiting = Block(line=line, language=language, source=source)
        elif not between.rstrip().rpartition("\n\n")[2].startswith(NOT_RUN):
            raise PageError(f"line {line}: not run, and nothing above it says why")
    if waiting is not None:
        yield waiting


def run_page(text: str, *, directory: Path, name: str) -> int:
    """Run the blocks of a page in a directory; gives how many there are.

    Raises PageError for the first one that fails, or prints something else.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for block in blocks_of(text):
        printed = (
            _run_python(block, names, page=name)
            if block.language == "python"
            else _run_bash(block, directory)
        )
        where = f"{name}, line {block.line}"
        if block.shown is None and printed:
            raise PageError(f"{where}: prints what the page does not show\n{printed}")
        if not is_as_shown(printed, block.shown or ""):
            raise PageError(f"{where}: shown is\n{block.shown}\nprinted was\n{printed}")
        count += 1
    return count


def is_as_shown(printed: str, shown: str) -> bool:
    """Whether an output is the one on the page."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == "…"
        else ".+?".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown.splitlines()
    )
    # Spaces at the ends of lines, and empty lines at the end, are nothing that a page can show.
    visible = re.sub(r" +$", "", printed, flags=re.MULTILINE).rstrip("\n")
    return re.fullmatch(pattern, f"{visible}\n" if visible else "") is not None


def _run_python(block: Block, names: dict[str, object], *, page: str) -> str:
    printed = StringIO()
    # Empty lines in front, so that a traceback names lines of the page.
    code: CodeType = compile("\n" * block.line + block.source, page, "exec")
    with redirect_stdout(printed):
        exec(code, names)  # noqa: S102 - the page is a program
    return printed.getvalue()


def _run_bash(block: Block, directory: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.source],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        end = done.stdout[-_BEHIND:]
        raise PageError(f"line {block.line}: ended with exit code {done.returncode}\n{end}")
    return done.stdout


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).read_text(), directory=Path.cwd(), name=sys.argv[1])
