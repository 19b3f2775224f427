"""What a commit of rows says about itself, in the words of Iceberg's snapshot summaries."""

from collections.abc import Mapping, Sequence

from pyroaring import BitMap64

from neve.model.data_file import DataFile
from neve.model.version import Operation


def operation_of(*, added_rows: int, marked: Mapping[str, BitMap64]) -> Operation:
    """Return the operation of a commit that adds rows and marks older ones."""
    if not marked:
        return Operation.APPEND
    return Operation.OVERWRITE if added_rows else Operation.DELETE


def summary_of(added: Sequence[DataFile]) -> dict[str, str]:
    """Count what a commit adds; what it marks and removes follows from its edit."""
    facts = {
        "added-data-files": len(added),
        "added-records": sum(file.row_count for file in added),
        "added-files-size": sum(file.file_bytes for file in added),
    }
    return {name: str(count) for name, count in facts.items() if count}
