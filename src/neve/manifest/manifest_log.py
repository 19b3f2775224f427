"""Decides transactions: the segment that is created first in a slot is the commit.

Steps of a commit on the state after segment S:

1. Create segment S+1 if absent. Whoever creates it has decided the slot.
2. Move HEAD from S to S+1, if it is still as the state knew it. That is the usual end.
3. Otherwise resolve: read the slot, then HEAD.
   - HEAD's checkpoint covers the slot: the slot may have been deleted and created anew by a writer
     that slept. The checkpoint remembers who got it.
   - the slot holds another transaction: lost; nothing of ours will ever be seen.
   - it holds ours and HEAD has reached it: committed.
   - it holds ours and HEAD is one behind: move HEAD, and look again.
   - it is empty: the create never arrived; repeat it.

P1  A transaction is committed, lost, or (when time runs out in step 3) OutcomeUnknown; a lost one
    never becomes visible.
P2  HEAD's segment and checkpoint never go down.
P3  Folding is contiguous from the checkpoint to HEAD; a hole is never passed over.
P4  Anyone may move HEAD over a decided segment, so a writer that dies blocks nobody.
P5  A segment names the transaction before it. A writer that slept may create a slot anew that was
    decided, folded and deleted long ago; nothing that follows names it, so no fold includes it.
P6  Segments at or below a published checkpoint are garbage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from neve.errors import Corruption, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.documents import (
    Head,
    Segment,
    StorePaths,
    decode_checkpoint,
    decode_head,
    decode_segment,
    encode_checkpoint,
    encode_head,
    encode_segment,
    numbers_in,
)
from neve.manifest.retry import Patience
from neve.manifest.state import Records, State
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore


class Decision(Enum):
    """How a slot was decided, for the transaction that asked."""

    COMMITTED = "committed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A state and the HEAD it was read at; no HEAD in a store without a commit."""

    state: State
    head: Head | None


class ManifestLog:
    """The objects of one store and the protocol on them; holds no state of its own."""

    def __init__(self, objects: ObjectStore, prefix: str, *, clock: Clock, ids: IdSource) -> None:
        self.objects = objects
        self.paths = StorePaths(prefix)
        self.clock = clock
        self._ids = ids

    def load(self, known: Loaded | None, patience: Patience) -> Loaded:
        """Read the newest state; costs one conditional read when `known` is the newest."""
        while True:
            head = self._read_head(known.head if known is not None else None)
            if head is None:
                return Loaded(state=State(), head=None)
            if known is not None and known.head is not None and head.tag == known.head.tag:
                return known
            state = self._fold(head, known.state if known is not None else None)
            if state is not None:
                return Loaded(state=state, head=head)
            # A checkpoint was published and segments were deleted since HEAD was read.
            patience.pause("the manifest moves too fast to be read", path=self.paths.head)

    def decide(self, base: Loaded, records: Records, patience: Patience) -> tuple[Decision, Loaded]:
        """Try to commit behind `base`; gives the state behind the decided slot.

        When lost, the state includes the winner of the slot, and everything behind it so far.
        """
        slot = base.state.segment + 1
        transaction = self._ids.uuid().bytes
        segment = Segment(
            epoch=base.state.epoch or self._draw_epoch(),
            number=slot,
            transaction=transaction,
            previous=base.state.transaction,
            written_ms=self.clock.now_ms(),
            records=records,
        )
        if self._create_segment(segment, patience):
            head = self._move_head(segment, base.head)
            if head is not None:
                state = base.state.apply(
                    records, segment=slot, transaction=transaction, epoch=segment.epoch
                )
                return Decision.COMMITTED, Loaded(state=state, head=head)
        decision = self._resolve(segment, patience)
        return decision, self.catch_up(base, patience)

    def catch_up(self, known: Loaded, patience: Patience) -> Loaded:
        """Read the newest state after moving HEAD over every decided segment."""
        while True:
            loaded = self.load(known, patience)
            following = self._read_segment(loaded.state.segment + 1)
            if following is None:
                return loaded
            self._move_head(following, loaded.head)
            known = loaded

    def publish_checkpoint(self, state: State, patience: Patience) -> bool:
        """Store the fold of a state and point HEAD to it; False when HEAD has a newer one."""
        path = self.paths.checkpoint(state.segment)
        if self.objects.put_if_absent(path, encode_checkpoint(state)) is None:
            decode_checkpoint(self.objects.get(path).payload, number=state.segment, path=path)
        while True:
            head = self._read_head(None)
            if head is None or head.checkpoint >= state.segment:
                return False
            if self._swap_head(
                head,
                segment=head.segment,
                transaction=head.transaction,
                checkpoint=state.segment,
            ):
                return True
            patience.pause("HEAD moves too fast", path=self.paths.head)

    def obsolete_objects(self) -> Iterator[str]:
        """Paths of segments and checkpoints that no reader of the present HEAD needs (P6)."""
        head = self._read_head(None)
        if head is None:
            return
        for number in numbers_in(self.objects, self.paths.segments):
            if number > head.checkpoint:
                break
            yield self.paths.segment(number)
        for number in numbers_in(self.objects, self.paths.checkpoints):
            if number >= head.checkpoint:
                break
            yield self.paths.checkpoint(number)

    def _read_head(self, known: Head | None) -> Head | None:
        try:
            if known is not None:
                found = self.objects.get_if_changed(self.paths.head, tag=known.tag)
                if found is None:
                    return known
            else:
                found = self.objects.get(self.paths.head)
        except NotFound:
            return None
        return decode_head(found.payload, tag=found.tag, path=self.paths.head)

    def _fold(self, head: Head, known: State | None) -> State | None:
        """Fold up to HEAD; None when objects it needs were deleted meanwhile."""
        state = known if known is not None and known.epoch == head.epoch else State()
        if state.segment > head.segment:
            raise Corruption(
                f"HEAD went back from segment {state.segment} to {head.segment}",
                path=self.paths.head,
                hint="an old copy of HEAD was put in place: restore the newest one",
            )
        if state.segment < head.checkpoint:
            loaded = self._read_checkpoint(head.checkpoint)
            if loaded is None:
                return self._unless_needed(head, self.paths.checkpoint(head.checkpoint), "missing")
            state = loaded
        while state.segment < head.segment:
            path = self.paths.segment(state.segment + 1)
            segment = self._read_segment(state.segment + 1)
            if segment is None:
                return self._unless_needed(head, path, "missing")
            if segment.epoch != head.epoch or segment.previous != state.transaction:
                return self._unless_needed(head, path, "not the successor of the one before")
            state = state.apply(
                segment.records,
                segment=segment.number,
                transaction=segment.transaction,
                epoch=segment.epoch,
            )
        if state.epoch != head.epoch or state.transaction != head.transaction:
            return self._unless_needed(head, self.paths.segment(head.segment), "not what HEAD says")
        return state

    def _unless_needed(self, head: Head, path: str, what: str) -> State | None:
        """Refuse a broken chain, unless HEAD has moved on so that the object is garbage."""
        now = self._read_head(None)
        if now is not None and now.checkpoint > head.checkpoint:
            return None
        raise Corruption(
            f"a manifest object that HEAD needs is {what}",
            path=path,
            hint="restore it from a copy: without it the history has a hole",
        )

    def _read_segment(self, number: int) -> Segment | None:
        path = self.paths.segment(number)
        try:
            return decode_segment(self.objects.get(path).payload, number=number, path=path)
        except NotFound:
            return None

    def _read_checkpoint(self, number: int) -> State | None:
        path = self.paths.checkpoint(number)
        try:
            return decode_checkpoint(self.objects.get(path).payload, number=number, path=path)
        except NotFound:
            return None

    def _create_segment(self, segment: Segment, patience: Patience) -> bool:
        """Create the slot; False when it is not certain that this very transaction did."""
        payload = encode_segment(segment)
        path = self.paths.segment(segment.number)
        while True:
            try:
                return self.objects.put_if_absent(path, payload) is not None
            except OutcomeUnknown:
                return False
            except Unavailable as error:
                patience.pause("the segment could not be written", path=path, cause=error)

    def _move_head(self, segment: Segment, head: Head | None) -> Head | None:
        """Point HEAD to the next decided segment; None when HEAD is not as it was."""
        if head is not None and head.segment != segment.number - 1:
            return None
        return self._swap_head(
            head,
            segment=segment.number,
            transaction=segment.transaction,
            checkpoint=head.checkpoint if head is not None else 0,
            epoch=segment.epoch,
        )

    def _swap_head(
        self,
        head: Head | None,
        *,
        segment: int,
        transaction: bytes,
        checkpoint: int,
        epoch: int | None = None,
    ) -> Head | None:
        new_epoch = head.epoch if head is not None else epoch
        assert new_epoch is not None
        payload = encode_head(
            epoch=new_epoch,
            segment=segment,
            transaction=transaction,
            checkpoint=checkpoint,
            nonce=self._ids.uuid().bytes,
        )
        try:
            if head is None:
                tag = self.objects.put_if_absent(self.paths.head, payload)
            else:
                tag = self.objects.put_if_match(self.paths.head, payload, tag=head.tag)
        except (OutcomeUnknown, Unavailable):
            return None  # the slot is decided; whether HEAD moved is seen by reading it
        if tag is None:
            return None
        return Head(
            epoch=new_epoch,
            segment=segment,
            transaction=transaction,
            checkpoint=checkpoint,
            tag=tag,
        )

    def _resolve(self, segment: Segment, patience: Patience) -> Decision:
        """Find out who got the slot; returns when it is known and HEAD has reached it."""
        while True:
            try:
                decision = self._look_at_slot(segment)
            except (Unavailable, OutcomeUnknown) as error:
                decision = None
                patience.note(error)
            if decision is not None:
                return decision
            patience.pause(
                "it could not be found out whether the commit happened",
                path=self.paths.segment(segment.number),
                unknown=True,
            )

    def _look_at_slot(self, segment: Segment) -> Decision | None:
        slot = self._read_segment(segment.number)
        head = self._read_head(None)
        if head is not None and head.checkpoint >= segment.number:
            return self._ask_checkpoint(segment, head)
        if slot is None:
            self.objects.put_if_absent(self.paths.segment(segment.number), encode_segment(segment))
            return None
        if slot.transaction != segment.transaction:
            return Decision.LOST
        if head is not None and head.segment >= segment.number:
            return Decision.COMMITTED
        self._move_head(slot, head)
        return None

    def _ask_checkpoint(self, segment: Segment, head: Head) -> Decision | None:
        state = self._read_checkpoint(head.checkpoint)
        if state is None:
            return None
        winner = state.transaction_of(segment.number)
        if winner is None:
            raise OutcomeUnknown(
                "the commit was decided longer ago than the manifest remembers",
                path=self.paths.segment(segment.number),
                hint="read the table before writing again",
            )
        return Decision.COMMITTED if winner == segment.transaction else Decision.LOST

    def _draw_epoch(self) -> int:
        return self._ids.uuid().int & ((1 << 63) - 1) or 1
