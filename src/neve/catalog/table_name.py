"""Names of namespaces and tables: parts joined by dots.

    shop.orders              table `orders` in the namespace `shop`
    eu.berlin.shop.orders    table `orders` in `eu.berlin.shop`, which is in `eu.berlin`

CATALOG-19  A part is what `neve.storage.table_paths.check_name` allows.
CATALOG-20  A table is always in a namespace.
CATALOG-21  A whole name has at most 16 parts and 1,024 bytes.
"""

from dataclasses import dataclass
from typing import Final

from neve.errors import InvalidArgument
from neve.storage.table_paths import check_name

NAME_PARTS_MAX: Final = 16
NAME_BYTES_MAX: Final = 1_024

# The search for similar names stops after this many, so that an error stays cheap.


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name, and the namespace it is in."""

    namespace: str
    table: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Read `namespace.table`; raises InvalidArgument."""
        check_name_text(text, what="table name")
        namespace, dot, table = text.rpartition(".")
        if not dot:
            check_name(text, what="table name")
            raise InvalidArgument(
                f"the table name {text!a} has no namespace",
                hint=f"Write namespace.table, such as default.{text}",
            )
        check_namespace(namespace)
        check_name(table, what="table name")
        return cls(namespace, table)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table}"


def check_namespace(text: str) -> None:
    """Raise InvalidArgument for an invalid name of a namespace."""
    check_name_text(text, what="namespace")
    for part in text.split("."):
        check_name(part, what="namespace")


def with_ancestors(namespace: str) -> tuple[str, ...]:
    """Return a namespace and its parents, outermost first."""
    parts = namespace.split(".")
    return tuple(".".join(parts[: count + 1]) for count in range(len(parts)))


def check_name_text(text: str, *, what: str) -> None:
    """Raise InvalidArgument for a name that is not text, or is too long."""
    if not isinstance(text, str):
        raise InvalidArgument(
            f"a {what} is text, not {type(text).__name__}", hint='Write "shop.orders"'
        )
    # Characters first: they bound the bytes, and a half surrogate has no bytes.
    size = len(text) if len(text) > NAME_BYTES_MAX else len(text.encode(errors="replace"))
    if size > NAME_BYTES_MAX or text.count(".") >= NAME_PARTS_MAX:
        raise InvalidArgument(
            f"the {what} {text[:40]!a}… is too long",
            hint=f"Use at most {NAME_PARTS_MAX} parts and {NAME_BYTES_MAX:,} bytes in all",
        )
