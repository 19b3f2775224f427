"""Shows the numbered rules of a docstring as a list.

In the source a rule is a line such as

    K1  Bytewise order of keys is the order of the tuples of their values.

with its continuation indented below it. Markdown would run such lines together into one paragraph.
Drawings are indented and stay as they are.
"""
# ruff: noqa: INP001  the site's own folder is no package

import re
from typing import Final

import griffe

_RULE: Final = re.compile(r"(?P<number>[A-Z]{1,2}\d{1,2})  (?P<text>\S.*)")


def list_rules(text: str) -> str:
    """Give the text with every numbered rule as an item of a list, number in bold."""
    lines: list[str] = []
    inside_rule = False
    for line in text.splitlines():
        rule = _RULE.fullmatch(line)
        if rule is not None:
            if not inside_rule:
                lines.append("")
            lines.append(f"- **{rule['number']}** {rule['text']}")
        else:
            inside_rule = inside_rule and line.startswith("    ")
            lines.append(line)
            continue
        inside_rule = True
    return "\n".join(lines)


class NumberedRules(griffe.Extension):
    """Changes docstrings as they are read for the site; the source stays as it is."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = list_rules(obj.docstring.value)
