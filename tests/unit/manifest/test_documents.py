"""Objects of a manifest store: their names, their bytes, and what is refused."""

import pytest

from neve.errors import Corruption
from neve.manifest import store_pb2
from neve.manifest.documents import (
    FrameKind,
    Lease,
    Segment,
    StorePaths,
    decode_checkpoint,
    decode_head,
    decode_lease,
    decode_segment,
    encode_checkpoint,
    encode_frame,
    encode_head,
    encode_lease,
    encode_segment,
    numbers_in,
)
from neve.manifest.state import Decided, State
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore

PATHS = StorePaths("manifest/t")


def segment(number: int = 3, **records: bytes | None) -> Segment:
    return Segment(
        epoch=9,
        number=number,
        transaction=b"t" * 16,
        previous=b"p" * 16,
        written_ms=1_700_000_000_000,
        records=records,
    )


def state_of(count: int) -> State:
    state = State()
    for number in range(1, count + 1):
        state = state.apply(
            {f"key {number % 3}": b"v%d" % number},
            segment=number,
            transaction=b"t%d" % number,
            epoch=9,
        )
    return state


class TestNames:
    def test_the_order_of_names_is_the_order_of_numbers(self) -> None:
        numbers = [1, 2, 9, 10, 11, 99, 100, 10**9, 10**19]

        assert sorted(map(PATHS.segment, numbers)) == [PATHS.segment(n) for n in numbers]

    def test_each_kind_has_its_place(self) -> None:
        assert PATHS.head == "manifest/t/HEAD"
        assert PATHS.segment(7) == "manifest/t/segments/seg-00000000000000000007"
        assert PATHS.checkpoint(64) == "manifest/t/checkpoints/ckpt-00000000000000000064"
        assert PATHS.lease("abc") == "manifest/t/leases/abc"

    def test_foreign_names_are_passed_over(self) -> None:
        objects: ObjectStore = MemoryStore()
        for name in (
            "segments/seg-1",
            "segments/seg-0000000000000000001x",
            "segments/seg-00000000000000000007.bak",
            "segments/seg-²0000000000000000007",
            "segments/seg-+0000000000000000007",
            "segments/other",
            "checkpoints/ckpt-00000000000000000003",
        ):
            objects.put(f"manifest/t/{name}", b"")
        for number in (12, 5):
            objects.put(PATHS.segment(number), b"")

        assert list(numbers_in(objects, PATHS.segments)) == [5, 12]


class TestHead:
    def test_a_head_comes_back_with_the_tag_it_was_read_at(self) -> None:
        payload = encode_head(epoch=9, segment=5, transaction=b"t", checkpoint=4, nonce=b"n")

        head = decode_head(payload, tag="17", path=PATHS.head)

        assert (head.epoch, head.segment, head.transaction) == (9, 5, b"t")
        assert (head.checkpoint, head.tag) == (4, "17")

    def test_the_nonce_makes_equal_heads_unlike(self) -> None:
        one, two = (
            encode_head(epoch=9, segment=5, transaction=b"t", checkpoint=4, nonce=nonce)
            for nonce in (b"1", b"2")
        )

        assert one != two

    @pytest.mark.parametrize(("at_segment", "checkpoint"), [(0, 0), (3, 4)])
    def test_a_head_that_points_nowhere_is_refused(self, at_segment: int, checkpoint: int) -> None:
        payload = encode_head(
            epoch=9, segment=at_segment, transaction=b"t", checkpoint=checkpoint, nonce=b"n"
        )

        with pytest.raises(Corruption, match=f"segment {at_segment}") as caught:
            decode_head(payload, tag="1", path=PATHS.head)

        assert caught.value.path == PATHS.head


class TestSegment:
    def test_a_segment_comes_back_with_deletes_and_empty_values_apart(self) -> None:
        original = segment(kept=b"v", empty=b"", gone=None)

        read = decode_segment(encode_segment(original), number=3, path=PATHS.segment(3))

        assert read == original

    def test_a_segment_in_anothers_place_is_refused(self) -> None:
        payload = encode_segment(segment(number=3))

        with pytest.raises(Corruption, match="segment 3 is where 4 belongs") as caught:
            decode_segment(payload, number=4, path=PATHS.segment(4))

        assert caught.value.path == PATHS.segment(4)


class TestCheckpoint:
    def test_equal_states_give_equal_bytes_whoever_folds_them(self) -> None:
        straight = state_of(8)
        with_a_stop = state_of(5).folded()
        for number in (6, 7, 8):
            with_a_stop = with_a_stop.apply(
                {f"key {number % 3}": b"v%d" % number},
                segment=number,
                transaction=b"t%d" % number,
                epoch=9,
            )

        assert encode_checkpoint(straight) == encode_checkpoint(with_a_stop)
        assert encode_checkpoint(straight) == encode_checkpoint(straight.folded())

    def test_a_checkpoint_comes_back_as_the_state_it_folds(self) -> None:
        folded = state_of(8).folded()

        read = decode_checkpoint(encode_checkpoint(folded), number=8, path=PATHS.checkpoint(8))

        assert read == folded
        assert read.checkpoint == read.segment == 8
        assert read.recent == tuple(Decided(n, b"t%d" % n) for n in range(1, 9))

    def test_a_checkpoint_in_anothers_place_is_refused(self) -> None:
        payload = encode_checkpoint(state_of(8).folded())

        with pytest.raises(Corruption, match="checkpoint 8 is where 9 belongs"):
            decode_checkpoint(payload, number=9, path=PATHS.checkpoint(9))

    @pytest.mark.parametrize("keys", [["b", "a"], ["a", "a"]], ids=["unordered", "repeated"])
    def test_keys_that_do_not_ascend_are_refused(self, keys: list[str]) -> None:
        message = store_pb2.Checkpoint(
            epoch=9, segment=1, entries=[store_pb2.Record(key=key, value=b"v") for key in keys]
        )
        payload = encode_frame(FrameKind.CHECKPOINT, message)

        with pytest.raises(Corruption, match="ascending"):
            decode_checkpoint(payload, number=1, path=PATHS.checkpoint(1))


class TestLease:
    def test_a_lease_comes_back(self) -> None:
        lease = Lease(lease_id="reader-1", version=12, expires_ms=1_700_000_060_000)

        assert decode_lease(encode_lease(lease), path=PATHS.lease("reader-1")) == lease

    def test_another_kind_of_object_is_no_lease(self) -> None:
        with pytest.raises(Corruption):
            decode_lease(encode_segment(segment()), path=PATHS.lease("x"))


def every_kind() -> dict[str, bytes]:
    return {
        "head": encode_head(epoch=9, segment=5, transaction=b"t", checkpoint=4, nonce=b"n"),
        "segment": encode_segment(segment(key=b"value", gone=None)),
        "checkpoint": encode_checkpoint(state_of(8).folded()),
        "lease": encode_lease(Lease(lease_id="reader-1", version=12, expires_ms=5)),
    }


def decode(kind: str, payload: bytes) -> object:
    match kind:
        case "head":
            return decode_head(payload, tag="1", path="p")
        case "segment":
            return decode_segment(payload, number=3, path="p")
        case "checkpoint":
            return decode_checkpoint(payload, number=8, path="p")
        case _:
            return decode_lease(payload, path="p")


@pytest.mark.parametrize("kind", ["head", "segment", "checkpoint", "lease"])
def test_an_object_that_is_cut_off_is_refused(kind: str) -> None:
    whole = every_kind()[kind]
    decode(kind, whole)

    for length in range(len(whole)):
        with pytest.raises(Corruption):
            decode(kind, whole[:length])
