"""Makes the lists of a docstring lists of the site.

In the source a rule is a line such as

    KEYS-1  Bytewise order of keys is the order of the tuples of their values.

with its continuation indented below it, and a list inside a numbered step is indented by three.
Markdown would run the rules together into one paragraph, and wants four spaces for the list inside.
Drawings are indented more deeply and stay as they are.
"""

import re
from typing import Final

import griffe

_RULE: Final = re.compile(r"(?P<number>[A-Z]+-[A-Z]?\d{1,2}) {2,}(?P<text>\S.*)")
_INNER_ITEM: Final = re.compile(r" {3}- \S")


def to_markdown(docstring: str) -> str:
    """Give the docstring with its rules, and lists inside of steps, as Markdown writes them."""
    lines: list[str] = []
    inside_rules = False
    for line in docstring.splitlines():
        rule = _RULE.fullmatch(line)
        if rule is not None:
            if not inside_rules:
                lines.append("")
            lines.append(f"- **{rule['number']}** {rule['text']}")
        else:
            lines.append(f" {line}" if _INNER_ITEM.match(line) else line)
        inside_rules = rule is not None or (inside_rules and line.startswith("    "))
    return "\n".join(lines)


class DocstringLists(griffe.Extension):
    """Changes docstrings as they are read for the site; the source stays as it is."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
