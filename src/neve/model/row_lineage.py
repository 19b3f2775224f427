"""Row lineage: which row of an Iceberg table a row is, and which commit last wrote it.

    column                          field id      without it in the file, a row at position p has
    _row_id                         2147483540    first_row_id of the file + p
    _last_updated_sequence_number   2147483539    data sequence number of the file

Iceberg reserves these two columns from format 3 on. A file of new rows does not have them: readers
compute them from the file's manifest entry. A file of moved rows has both, at the end, so that a
rewrite changes neither. They are the only columns of a data file that are not the user's; every
reader hides them unless asked for them by name.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.model.arrow_buffers import flag_array
from neve.model.arrow_types import ArrowField, field_metadata
from neve.model.data_file import DataFile

ROW_ID: Final = "_row_id"  # on disk: never change
UPDATED_SEQUENCE: Final = "_last_updated_sequence_number"  # on disk: never change
LINEAGE_NAMES: Final = (ROW_ID, UPDATED_SEQUENCE)

_FORMAT_PROPERTY: Final = "format-version"
_FORMAT_WITH_LINEAGE: Final = 3  # also what a table has that does not say
_FIELDS: Final[tuple[ArrowField, ...]] = (
    pa.field(ROW_ID, pa.int64(), metadata=field_metadata(field_id=2_147_483_540, doc=None)),
    pa.field(
        UPDATED_SEQUENCE, pa.int64(), metadata=field_metadata(field_id=2_147_483_539, doc=None)
    ),
)
LINEAGE_SCHEMA: Final = pa.schema(_FIELDS)


def has_lineage(properties: Mapping[str, str]) -> bool:
    """Return whether the rows of a table with these properties have a lineage."""
    return int(properties.get(_FORMAT_PROPERTY, _FORMAT_WITH_LINEAGE)) >= _FORMAT_WITH_LINEAGE


def with_lineage(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a file that has these columns and its rows' lineage."""
    return pa.schema([*schema, *_FIELDS])


def lineage_of(
    file: DataFile,
    stored: pa.Table | None,
    *,
    start: int,
    stop: int,
    kept: npt.NDArray[np.bool_] | None = None,
) -> pa.Table:
    """Return the lineage of rows [start, stop) of a file, or of those that are kept.

    `stored` are the lineage columns of all these rows. A row of a file without a first row id has
    no id: it gets one in the file it moves to.
    """
    if stored is None:
        return _inherited(file, start, stop, kept)
    if kept is not None:
        stored = stored.filter(flag_array(kept))
    if not any(column.null_count for column in stored.columns):
        return stored
    inherited = _inherited(file, start, stop, kept)
    columns = [pc.coalesce(stored.column(name), inherited.column(name)) for name in LINEAGE_NAMES]
    return pa.Table.from_arrays(columns, schema=LINEAGE_SCHEMA)


def _inherited(
    file: DataFile, start: int, stop: int, kept: npt.NDArray[np.bool_] | None
) -> pa.Table:
    places = np.arange(start, stop) if kept is None else np.flatnonzero(kept) + start
    sequences = pa.repeat(pa.scalar(file.data_sequence or None, pa.int64()), len(places))
    if file.first_row_id is None:
        row_ids = pa.repeat(pa.scalar(None, pa.int64()), len(places))
    else:
        row_ids = pa.array(places + file.first_row_id, pa.int64())
    return pa.Table.from_arrays([row_ids, sequences], schema=LINEAGE_SCHEMA)
