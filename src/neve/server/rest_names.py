"""Names of Iceberg's REST API and of a lake: levels in a list on one side, dots on the other.

    ["eu", "berlin"], "orders"    eu.berlin.orders
    ["a.b"], "c/d"                a%2Eb.c%2Fd

A dot or a slash inside of a level has no place in a name of neve, so it is written as in a URL.
Paths of requests separate the levels of a namespace by the unit separator.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neve.server.error_model import bad_request

SEPARATOR: Final = "\x1f"

_STEPS: Final = frozenset({".", ".."})  # clients and proxies take them for steps of a path

_ESCAPED: Final = re.compile(r"%(2E|2F|25)")
_CHARACTERS: Final = {"2E": ".", "2F": "/", "25": "%"}


def part_of(level: str) -> str:
    """Return a level as a part of a name of neve."""
    escaped = _ESCAPED.sub(lambda found: f"%25{found[1]}", level)
    return escaped.replace(".", "%2E").replace("/", "%2F")


def level_of(part: str) -> str:
    """Return a part of a name of neve as a level."""
    return _ESCAPED.sub(lambda found: _CHARACTERS[found[1]], part)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace as a request names it."""

    levels: tuple[str, ...]

    @classmethod
    def of_path(cls, text: str) -> "Namespace":
        """Read the namespace in a path; raises RequestRefused."""
        return cls.of_levels(text.split(SEPARATOR))

    @classmethod
    def of_levels(cls, levels: object) -> "Namespace":
        """Read the namespace in a body; raises RequestRefused."""
        if not isinstance(levels, Sequence) or isinstance(levels, str) or not levels:
            raise bad_request("a namespace is a list of at least one level")
        if not all(isinstance(each, str) and each for each in levels):
            raise bad_request("each level of a namespace is text that is not empty")
        if not _STEPS.isdisjoint(levels):
            raise bad_request("no level of a namespace is . or ..")
        return cls(tuple(levels))

    @classmethod
    def of_dotted(cls, name: str) -> "Namespace":
        """Return the levels of a namespace of the lake."""
        return cls(tuple(map(level_of, name.split("."))))

    @property
    def dotted(self) -> str:
        """Its name in the lake."""
        return ".".join(map(part_of, self.levels))


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table as a request names it."""

    namespace: Namespace
    name: str

    @classmethod
    def of_body(cls, identifier: object) -> "TableRef":
        """Read an identifier in a body; raises RequestRefused."""
        if not isinstance(identifier, dict):
            raise bad_request("an identifier has a namespace and a name")
        namespace = Namespace.of_levels(identifier.get("namespace"))
        return cls.of_name(namespace, identifier.get("name"))

    @classmethod
    def of_name(cls, namespace: Namespace, name: object) -> "TableRef":
        """Read the name of a table in a namespace; raises RequestRefused."""
        if not isinstance(name, str) or not name or name in _STEPS:
            raise bad_request("a table has a name, which is text and neither . nor ..")
        return cls(namespace, name)

    @classmethod
    def of_dotted(cls, name: str) -> "TableRef":
        """Return the levels of a table of the lake."""
        namespace, _, table = name.rpartition(".")
        return cls(Namespace.of_dotted(namespace), level_of(table))

    @property
    def dotted(self) -> str:
        """Its name in the lake."""
        return f"{self.namespace.dotted}.{part_of(self.name)}"

    @property
    def document(self) -> dict[str, object]:
        """The identifier as a member of a body."""
        return {"namespace": list(self.namespace.levels), "name": self.name}
