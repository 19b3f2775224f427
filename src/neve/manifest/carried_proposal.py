"""RebasedProposal: a proposal on its way from the Version it was made on to the one it changes.

    base ──► settled ──► settled ──► staged?        settled   a committed Version: it stays there
                            └──────► staged?        staged    others' commits that may yet be lost

Being carried to a committed Version is for good: only what comes behind it is looked up later. To
one that others have merely staged it is carried for the moment; when their segment is lost, it
starts again from where it was settled.

What a try has written (vectors) is garbage when the try is lost, and used again by the next one if
that needs exactly the same.
"""

from collections.abc import Collection, Mapping

from pyroaring import BitMap64

from neve.manifest.rebase import Proposal, RowLookup, WriteVectors, complete, rebase
from neve.model.data_file import VectorRef
from neve.model.version import Version, VersionEdit


class RebasedProposal:
    """A proposal, the committed Version it was carried to, and its vectors; for one commit."""

    def __init__(
        self, proposal: Proposal, base: Version, *, lookup: RowLookup, write_vectors: WriteVectors
    ) -> None:
        assert proposal.base == base.number
        self._proposal = proposal
        self._settled_on = base
        self._lookup = lookup
        self._write_vectors = write_vectors
        self._made: tuple[Version, VersionEdit] | None = None
        self._written: tuple[Mapping[str, BitMap64], Mapping[str, VectorRef]] | None = None

    @property
    def number(self) -> int:
        """The committed Version it was carried to."""
        return self._settled_on.number

    def edit_on(
        self, current: Version, touched: Collection[str] | None, *, is_committed: bool
    ) -> VersionEdit:
        """Return the edit that it is on a Version; raises Conflict when it is void there.

        `touched` is as in `rebase`, from `number` on.
        """
        # The very object, as its number says too little: a staged one may be lost, and another
        # one committed in its place.
        if self._made is not None and self._made[0] is current:
            return self._made[1]
        carried = rebase(self._proposal, self._settled_on, current, self._lookup, touched=touched)
        if is_committed:
            self._proposal, self._settled_on = carried, current
        edit = complete(carried, current, self._lookup, self._write_once)
        self._made = current, edit
        return edit

    def _write_once(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        if self._written is None or self._written[0] != whole:
            self._written = whole, self._write_vectors(whole)
        return self._written[1]
