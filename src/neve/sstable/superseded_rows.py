"""Which rows of the files of a Version new rows and deletes stand in for.

A commit is clean when no key is left with two live rows. Whoever adds rows, or deletes some, asks
here where the older rows of their keys are, and marks these in the same commit.

    keys, sorted        b  d  e  k  m  q  z
    file 1  [c … l]        d  e  k             looked up in its index: positions 17, 40
    file 2  [n … o]                            not opened: no key in its bounds
    file 3  [a … z]                            not opened: of a partition that none of them is in
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from neve.keys.arrays import within
from neve.keys.columns import KeyArray
from neve.model.data_file import DataFile


class FindsPositions(Protocol):
    """An open data file, as far as it matters here: a `DataFileReader`."""

    def positions_of(self, keys: KeyArray) -> npt.NDArray[np.int64]:
        """Positions of the rows that have one of these keys, ascending."""
        ...


def superseded_rows(
    files: Iterable[DataFile],
    keys: KeyArray,
    *,
    open_reader: Callable[[DataFile], FindsPositions],
    vector_of: Callable[[DataFile], BitMap64 | None],
    keys_for: Callable[[DataFile], KeyArray] | None = None,
) -> dict[str, BitMap64]:
    """Return the live rows of ascending `keys` by path of their file; others are left out.

    `vector_of` gives the rows of a file that are marked already, and so no longer live. Only files
    whose bounds hold one of the keys are opened. `keys_for` gives those of the keys that may be in
    a file's partition, where the key tells that.
    """
    found: dict[str, BitMap64] = {}
    if not len(keys):
        return found
    for file in files:
        wanted = keys if keys_for is None else keys_for(file)
        inside = within(wanted, file.key_min, file.key_max)
        if inside.start == inside.stop:
            continue
        positions = open_reader(file).positions_of(
            wanted.slice(inside.start, inside.stop - inside.start)
        )
        if not len(positions):
            continue
        live = BitMap64(positions.astype(np.uint64))
        marked = vector_of(file)
        if marked is not None:
            live -= marked
        if live:
            found[file.path] = live
    return found
