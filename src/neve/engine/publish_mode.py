"""When the Versions of a table are published to other engines."""

from enum import StrEnum


class PublishMode(StrEnum):
    """When commits are published."""

    COMMIT = "commit"
    DEMAND = "demand"
