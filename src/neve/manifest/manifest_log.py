"""ManifestLog: decides transactions; the segment created first in a slot is the commit.

Steps of a commit on the state after segment S:

1. Create segment S+1 if absent. Creating it decides the slot.
2. Move HEAD from S to S+1, if it is still as the state knew it. That is the usual end.
3. Otherwise resolve: read the slot, then HEAD.
   - HEAD's checkpoint covers the slot: the slot may have been deleted, and created again by a
     writer that slept. The checkpoint remembers the transaction that got it.
   - the slot holds another transaction: lost; no reader will ever see ours.
   - it holds ours and HEAD has reached it: committed.
   - it holds ours and HEAD is one behind: move HEAD; if that fails, look again.
   - it is empty: the create never arrived; repeat it.

MANIFEST-P1  A transaction is committed, lost, or (when time runs out in step 3, or damage is found
             there) OutcomeUnknown; a lost one never becomes visible.
MANIFEST-P2  HEAD's segment and checkpoint never go down.
MANIFEST-P3  Folding is contiguous from the checkpoint to HEAD; a hole is never skipped. An old copy
             of HEAD, or a missing HEAD, is refused as far as other objects reveal it.
MANIFEST-P4  Any process may move HEAD over a decided segment, so a dead writer blocks no one.
MANIFEST-P5  A segment names the transaction before it. A writer that slept may create a slot again
             that was decided, folded and deleted long ago; nothing that follows names it, so no
             fold includes it.
MANIFEST-P6  Segments at or below a published checkpoint are garbage.
MANIFEST-P7  An object that was only read may be lost in a power cut until its writer has synced it.
             Before HEAD is moved over a segment, before garbage is deleted, and before a commit
             that another process finished is confirmed, the objects it builds on are made durable
             by an attempt to create them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

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
from neve.storage.object_store import CountsRequests, ObjectStore, at_once

T = TypeVar("T")
R = TypeVar("R")

_SEGMENTS_IN_MEMORY: Final = 256


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
        known_head = known.head if known is not None else None
        while True:
            head = self._read_head(known_head)
            if head is None:
                if known_head is None and not self._has_history():
                    return Loaded(state=State(), head=None)
                if self._read_head(None) is None:
                    raise self._head_is_missing()
                continue
            if known is not None and known_head is not None:
                if head.tag == known_head.tag:
                    return known
                self._refuse_step_back(known_head, head)
            state = self._fold(head, known.state if known is not None else State())
            if state is not None:
                return Loaded(state=state, head=head)
            # A checkpoint was published and segments were deleted since HEAD was read.
            patience.pause("the manifest moves too fast to be read", path=self.paths.head)

    def decide(self, base: Loaded, records: Records, patience: Patience) -> tuple[Decision, Loaded]:
        """Try to commit after `base`; return the state that is known afterwards.

        When committed, that is the state after the slot, with the HEAD of `base` if it had to be
        resolved: no further read can fail. When lost, the state includes the winner of the slot,
        and what was published after it.
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
        state = base.state.apply(
            records, segment=slot, transaction=transaction, epoch=segment.epoch
        )
        is_created = self._create_segment(segment, patience)
        if is_created:
            head = self._move_head(segment, base.head)
            if head is not None:
                return Decision.COMMITTED, Loaded(state=state, head=head)
        try:
            decision = self._resolve(segment, patience)
        except Corruption as damage:
            if is_created is False:
                raise
            raise OutcomeUnknown(
                f"it is unknown whether the commit happened: {damage.message}",
                path=damage.path,
                hint="Repair the store, then read before writing again",
            ) from damage
        if decision is Decision.COMMITTED:
            return decision, Loaded(state=state, head=base.head)
        loaded = self.load(base, patience)
        if loaded.state.segment < slot:
            loaded = self.catch_up(loaded, patience)
        return decision, loaded

    def catch_up(self, known: Loaded, patience: Patience) -> Loaded:
        """Return the newest state after moving HEAD over every decided segment.

        `known` was just read.
        """
        tried: Loaded | None = None
        loaded = known
        while True:
            following = self._read_segment(loaded.state.segment + 1)
            if following is None:
                return loaded
            self._refuse_stranger(following, loaded)
            if tried is not None and tried.head == loaded.head:
                patience.pause("HEAD could not be moved", path=self.paths.head)
            self._advance(following, loaded.head, patience)
            tried = loaded
            loaded = self.load(tried, patience)

    def _refuse_stranger(self, segment: Segment, loaded: Loaded) -> None:
        """Raise Corruption for a segment after HEAD that is not HEAD's successor; HEAD stays.

        Another store's segment, or one of a mixed restore: with HEAD on it, no fold would end.
        """
        state = loaded.state
        is_successor = segment.previous == state.transaction and (
            state.segment == 0 or segment.epoch == state.epoch
        )
        if not is_successor and self._read_head(None) == loaded.head:
            raise Corruption(
                "a segment after HEAD is not its successor",
                path=self.paths.segment(segment.number),
                hint="Move it away: it belongs to another store",
            )

    def refuse_old_head(self, loaded: Loaded) -> None:
        """Raise Corruption when objects exist that only a newer HEAD can have published.

        `loaded` is caught up. An old copy of HEAD whose checkpoint still exists looks complete, and
        the slots after it look free because they were collected.
        """
        if loaded.head is None:
            return
        reached = loaded.state.segment
        looks = (
            (self.paths.segment, self.paths.segments, reached + 1),
            (self.paths.checkpoint, self.paths.checkpoints, reached),
        )
        first = self._at_once(
            lambda look: next(numbers_in(self.objects, look[1], after=look[2]), None), looks
        )
        for (spell, _, _), number in zip(looks, first, strict=True):
            if number is not None and self._read_head(None) == loaded.head:
                raise Corruption(
                    f"HEAD is at segment {reached}, older than {spell(number)}",
                    path=self.paths.head,
                    hint="Restore the newest HEAD: this one is an old copy",
                )

    def publish_checkpoint(self, state: State, patience: Patience) -> bool:
        """Store the fold of a state and point HEAD to it; False when HEAD has one as new."""
        self._create_checkpoint(state, patience)
        tried = False
        while True:
            head = self._read_head(None)
            if head is None:
                raise self._head_is_missing()
            if head.checkpoint >= state.segment:
                return tried and head.checkpoint == state.segment
            if self._swap_head(
                head,
                segment=head.segment,
                transaction=head.transaction,
                checkpoint=state.segment,
            ):
                return True
            tried = True
            patience.pause("HEAD could not be moved", path=self.paths.head)

    def obsolete_objects(self) -> Iterator[str]:
        """Yield the paths of objects that no reader of the current HEAD needs (MANIFEST-P6)."""
        head = self._read_head(None)
        if head is None:
            return
        # A deletion may survive a power cut that loses a HEAD which was not synced (MANIFEST-P7).
        self.objects.put_if_absent(self.paths.head, self._encode_again(head))
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

    def _has_history(self) -> bool:
        """Whether objects exist that can only have been written after a HEAD."""
        segments = numbers_in(self.objects, self.paths.segments, after=1)
        checkpoints = numbers_in(self.objects, self.paths.checkpoints)
        return next(segments, None) is not None or next(checkpoints, None) is not None

    def _head_is_missing(self) -> Corruption:
        return Corruption(
            "HEAD is missing, and the store is not new",
            path=self.paths.head,
            hint="Restore it from a copy: the content of the store is unknown without it",
        )

    def _refuse_step_back(self, known: Head, head: Head) -> None:
        if head.epoch != known.epoch:
            raise Corruption(
                "another store has replaced this one",
                path=self.paths.head,
                hint="Restore the old one, or open the new one with a new handle",
            )
        for what, before, now in (
            ("segment", known.segment, head.segment),
            ("checkpoint", known.checkpoint, head.checkpoint),
        ):
            if now < before:
                raise Corruption(
                    f"HEAD went back from {what} {before} to {now}",
                    path=self.paths.head,
                    hint="Restore the newest HEAD: this one is an old copy",
                )

    def _fold(self, head: Head, known: State) -> State | None:
        """Fold up to HEAD; None when objects it needs were deleted in the meantime."""
        state = known
        if state.segment < head.checkpoint:
            loaded = self._read_checkpoint(head.checkpoint)
            if loaded is None:
                return self._unless_needed(head, self.paths.checkpoint(head.checkpoint), "missing")
            state = loaded
        for number, segment in self._read_segments(state.segment + 1, head.segment):
            path = self.paths.segment(number)
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
        if state.checkpoint < head.checkpoint:
            # A reader that only follows would otherwise keep every change since it began.
            state = state.rebased(head.checkpoint)
        return state

    def _unless_needed(self, head: Head, path: str, what: str) -> State | None:
        """Refuse a broken chain, unless HEAD has moved on so that the object is garbage."""
        now = self._read_head(None)
        if now is not None and now.checkpoint > head.checkpoint:
            return None
        raise Corruption(
            f"a manifest object that HEAD needs is {what}",
            path=path,
            hint="Restore it from a copy: without it the history has a hole",
        )

    def _read_segments(self, first: int, last: int) -> Iterator[tuple[int, Segment | None]]:
        """Yield segments by number, those of a bucket read side by side."""
        for start in range(first, last + 1, _SEGMENTS_IN_MEMORY):
            numbers = range(start, min(start + _SEGMENTS_IN_MEMORY, last + 1))
            yield from zip(numbers, self._at_once(self._read_segment, numbers), strict=True)

    def _at_once(self, call: Callable[[T], R], arguments: Sequence[T]) -> Iterable[R]:
        """Make calls side by side where each waits for the network, otherwise in turn."""
        if isinstance(self.objects, CountsRequests):
            return at_once(call, arguments)
        return map(call, arguments)

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

    def _create_checkpoint(self, state: State, patience: Patience) -> None:
        """Store a checkpoint, or make an existing one of the same history durable."""
        path = self.paths.checkpoint(state.segment)
        payload = encode_checkpoint(state)
        while True:
            try:
                if self.objects.put_if_absent(path, payload) is not None:
                    return
                found = self.objects.get(path).payload
            except (NotFound, OutcomeUnknown, Unavailable) as error:
                patience.pause("the checkpoint could not be stored", path=path, cause=error)
                continue
            there = decode_checkpoint(found, number=state.segment, path=path)
            if (there.epoch, there.transaction) == (state.epoch, state.transaction):
                return
            raise Corruption(
                f"the checkpoint of segment {state.segment} belongs to another history",
                path=path,
                hint="Remove it: HEAD does not point to it",
            )

    def _create_segment(self, segment: Segment, patience: Patience) -> bool | None:
        """Create the slot; False when it has other content, None when the answer was lost."""
        payload = encode_segment(segment)
        path = self.paths.segment(segment.number)
        while True:
            try:
                return self.objects.put_if_absent(path, payload) is not None
            except OutcomeUnknown:
                return None
            except Unavailable as error:
                patience.pause("the segment could not be written", path=path, cause=error)

    def _move_head(self, segment: Segment, head: Head | None) -> Head | None:
        """Point HEAD to the next decided segment; None when HEAD has changed."""
        if head is not None and head.segment != segment.number - 1:
            return None
        return self._swap_head(
            head,
            segment=segment.number,
            transaction=segment.transaction,
            checkpoint=head.checkpoint if head is not None else 0,
            epoch=segment.epoch,
        )

    def _advance(self, segment: Segment, head: Head | None, patience: Patience) -> bool:
        """Move HEAD over a segment that was only read (MANIFEST-P4, MANIFEST-P7)."""
        path = self.paths.segment(segment.number)
        is_settled = self._settle(path, encode_segment(segment), patience)
        return is_settled and self._move_head(segment, head) is not None

    def _settle(self, path: str, payload: bytes, patience: Patience) -> bool:
        """Create an object, or make the existing one durable; False when that is uncertain."""
        try:
            self.objects.put_if_absent(path, payload)
        except (OutcomeUnknown, Unavailable) as error:
            patience.note(error)
            return False
        return True

    def _encode_again(self, head: Head) -> bytes:
        return encode_head(
            epoch=head.epoch,
            segment=head.segment,
            transaction=head.transaction,
            checkpoint=head.checkpoint,
            nonce=self._ids.uuid().bytes,
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
            return None  # the slot is decided; reading HEAD shows whether it moved
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
        """Find out which transaction got the slot; return once HEAD has reached it."""
        while True:
            try:
                decision = self._look_at_slot(segment, patience)
            except Unavailable as error:
                decision = None
                patience.note(error)
            if decision is not None:
                return decision
            patience.pause(
                "it is unknown whether the commit happened",
                path=self.paths.segment(segment.number),
                unknown=True,
            )

    def _look_at_slot(self, segment: Segment, patience: Patience) -> Decision | None:
        number = segment.number
        slot = self._read_segment(number)
        head = self._read_head(None)
        if head is None and number > 1:
            raise self._head_is_missing()
        is_reached = head is not None and head.segment >= number
        if head is not None and head.checkpoint >= number:
            decision = self._ask_checkpoint(segment, head)
        elif slot is None:
            if not is_reached:
                self._settle(self.paths.segment(number), encode_segment(segment), patience)
            return None
        elif slot.transaction != segment.transaction:
            return Decision.LOST
        elif is_reached:
            decision = Decision.COMMITTED
        else:
            return Decision.COMMITTED if self._advance(slot, head, patience) else None
        if decision is Decision.COMMITTED and head is not None:
            is_settled = self._settle(self.paths.head, self._encode_again(head), patience)
            return decision if is_settled else None
        return decision

    def _ask_checkpoint(self, segment: Segment, head: Head) -> Decision | None:
        state = self._read_checkpoint(head.checkpoint)
        if state is None:
            return None
        winner = state.transaction_of(segment.number)
        if winner is None:
            raise OutcomeUnknown(
                "the commit was decided longer ago than the manifest remembers",
                path=self.paths.segment(segment.number),
                hint="Read the table before writing again",
            )
        return Decision.COMMITTED if winner == segment.transaction else Decision.LOST

    def _draw_epoch(self) -> int:
        return self._ids.uuid().int & ((1 << 63) - 1) or 1
