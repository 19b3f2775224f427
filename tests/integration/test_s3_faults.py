"""The real client against a server that fails by plan: no false conflict, no double commit.

Sleeping costs nothing here (the clock is simulated), and every fault strikes the client's own
requests, behind its connection pool and its retries.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import pytest

from neve.errors import NotFound, OutcomeUnknown, Unavailable
from neve.storage.object_store import ObjectStore
from neve.storage.open_store import open_store
from neve.testing.faulty_store import Fault, Operation, PlannedFault, StoreCall
from neve.testing.s3_servers import MotoServer
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.conftest import Record
from tests.gates import Gate

pytestmark = pytest.mark.s3

OLD, NEW, OTHER = b"old bytes", b"new bytes", b"another's bytes"
ANSWERED_BY_THE_SERVER = [Fault.BEFORE, Fault.CONFLICT, Fault.BUSY, Fault.LOST, Fault.LATE]


def client(server: MotoServer, prefix: str, **options: str) -> ObjectStore:
    """Open a store whose patience is thirty seconds of a clock that needs no waiting."""
    return open_store(
        server.at.location(prefix),
        storage_options=server.at.storage_options(timeout_seconds="0.5", **options),
        clock=SimulatedClock(),
        ids=SeededIds(),
    )


@pytest.fixture
def store(moto: MotoServer, prefix: str) -> ObjectStore:
    return client(moto, prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the matrix: calls of one operation on one object are struck by one fault."""

    server: MotoServer
    store: ObjectStore
    path: str
    fault: Fault
    operation: Operation
    times: int

    def strike(self) -> None:
        strike(self.server, self.fault, self.operation, self.times)


def strike(server: MotoServer, fault: Fault, operation: Operation, times: int) -> None:
    server.application.follow([PlannedFault(fault=fault, operation=operation, times=times)])


def outcome(call: Callable[[], object]) -> object:
    """Return what the call returned, or the class of what it raised."""
    try:
        return call()
    except (NotFound, OutcomeUnknown, Unavailable) as error:
        return type(error)


def the_only_writer_is_told_so(case: Case) -> bool:
    """Make one change under a fault; whether it was done once and answered as done."""
    store, path = case.store, case.path
    tag = "" if case.operation is Operation.PUT_IF_ABSENT else store.put(path, OLD)
    case.strike()
    match case.operation:
        case Operation.PUT:
            given = outcome(lambda: store.put(path, NEW))
        case Operation.PUT_IF_ABSENT:
            given = outcome(lambda: store.put_if_absent(path, NEW))
        case Operation.PUT_IF_MATCH:
            given = outcome(lambda: store.put_if_match(path, NEW, tag=tag))
        case _:
            given = outcome(lambda: store.delete(path))
    if case.operation is Operation.DELETE:
        return given is None and outcome(lambda: store.get(path)) is NotFound
    if not isinstance(given, str):
        return False
    # What the server still holds back lands before this write, and must not undo it.
    store.put(f"{path}-flush", b"")
    found = store.get(path)
    return found.payload == NEW and store.put_if_match(path, OTHER, tag=given) is not None


def the_loser_is_told_so(case: Case) -> bool:
    """Lose to another writer under a fault; whether nothing was changed and nobody told otherwise.

    A create that lost is always known to have; of an update with a lost answer nobody can know.
    """
    store, path = case.store, case.path
    stale = store.put(path, OLD)
    store.put(path, OTHER)
    case.strike()
    if case.operation is Operation.PUT_IF_ABSENT:
        told = outcome(lambda: store.put_if_absent(path, NEW)) is None
    else:
        given = outcome(lambda: store.put_if_match(path, NEW, tag=stale))
        certain = case.fault in {Fault.CONFLICT, Fault.TWICE}
        told = given is None if certain else given in {None, OutcomeUnknown}
    store.put(f"{path}-flush", b"")
    return told and store.get(path).payload == OTHER


def the_reader_is_served(case: Case) -> bool:
    """Read under a fault; whether the answer is the one without faults."""
    store, path = case.store, case.path
    tag = store.put(path, OLD)
    case.strike()
    match case.operation:
        case Operation.GET:
            return outcome(lambda: store.get(path).payload) == OLD
        case Operation.GET_IF_CHANGED:
            return outcome(lambda: store.get_if_changed(path, tag=tag)) is None
        case Operation.GET_RANGE:
            return outcome(lambda: store.get_range(path, start=1, length=2)) == OLD[1:3]
        case Operation.SIZE:
            return outcome(lambda: store.size(path)) == len(OLD)
        case _:
            return outcome(lambda: [info.path for info in store.list(path)]) == [path]


WRITES = [Operation.PUT, Operation.PUT_IF_ABSENT, Operation.PUT_IF_MATCH, Operation.DELETE]
CONDITIONAL = [Operation.PUT_IF_ABSENT, Operation.PUT_IF_MATCH]
READS = [operation for operation in Operation if operation not in WRITES]
MATRIX = [
    (story, operation)
    for story, operations in (
        (the_only_writer_is_told_so, WRITES),
        (the_loser_is_told_so, CONDITIONAL),
        (the_reader_is_served, READS),
    )
    for operation in operations
]


@pytest.mark.parametrize("fault", Fault)
def test_the_fault_matrix_has_no_false_conflict_and_no_double_commit(
    moto: MotoServer, store: ObjectStore, fault: Fault, scoreboard: Record
) -> None:
    # Each strike of a time-out costs the client's whole time-out.
    strikes = (1,) if fault is Fault.TIMEOUT else (1, 2, 5)
    wrong = []
    cases = 0
    for story, operation in MATRIX:
        for times in strikes:
            moto.application.follow([])
            case = Case(
                server=moto,
                store=store,
                path=f"{story.__name__}/{operation}/{times}",
                fault=fault,
                operation=operation,
                times=times,
            )
            cases += 1
            if not story(case):
                wrong.append(case.path)

    scoreboard(f"R16 S3 fault {fault} × every call: {len(wrong)} of {cases}")
    assert wrong == []


class TestHowAConditionalWriteEnds:
    def test_success_costs_one_request(self, moto: MotoServer, store: ObjectStore) -> None:
        tag = store.put_if_absent("slot", OLD)
        assert tag is not None
        store.put_if_match("slot", NEW, tag=tag)

        assert operations(moto) == [Operation.PUT_IF_ABSENT, Operation.PUT_IF_MATCH]

    def test_a_conflict_costs_one_more(self, moto: MotoServer, store: ObjectStore) -> None:
        stale = store.put("slot", OLD)
        store.put("slot", OTHER)
        moto.application.follow([])

        store.put_if_absent("slot", NEW)
        store.put_if_match("slot", NEW, tag=stale)

        assert operations(moto) == [
            Operation.PUT_IF_ABSENT,
            Operation.GET,
            Operation.PUT_IF_MATCH,
            Operation.GET,
        ]

    def test_every_repetition_is_preceded_by_a_look(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        strike(moto, Fault.BEFORE, Operation.PUT_IF_ABSENT, 2)

        store.put_if_absent("slot", NEW)

        assert operations(moto) == [
            Operation.PUT_IF_ABSENT,
            Operation.GET,
            Operation.PUT_IF_ABSENT,
            Operation.GET,
            Operation.PUT_IF_ABSENT,
        ]

    def test_a_409_for_ever_ends_as_certainly_not_written(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        tag = store.put("head", OLD)

        for operation in CONDITIONAL:
            strike(moto, Fault.CONFLICT, operation, 1_000)
            with pytest.raises(Unavailable, match="409 ConditionalRequestConflict"):
                conditional(store, operation, tag)

        assert store.get("head").payload == OLD

    def test_lost_answers_for_ever_end_as_unknown(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        tag = store.put("head", OLD)

        for operation in CONDITIONAL:
            strike(moto, Fault.BEFORE, operation, 1_000)
            with pytest.raises(OutcomeUnknown) as unknown:
                conditional(store, operation, tag)
            assert unknown.value.hint
            assert unknown.value.__context__ is None

    def test_a_plain_write_with_lost_answers_for_ever_ends_as_unknown(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        strike(moto, Fault.BUSY, Operation.PUT, 1_000)
        with pytest.raises(OutcomeUnknown):
            store.put("object", NEW)

        strike(moto, Fault.BUSY, Operation.DELETE, 1_000)
        with pytest.raises(OutcomeUnknown):
            store.delete("object")

    def test_one_lost_answer_makes_a_later_no_unknown(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        lost_then_refused = [
            PlannedFault(fault=Fault.BUSY, call=1),
            PlannedFault(fault=Fault.CONFLICT, operation=Operation.PUT, times=1_000),
        ]
        moto.application.follow(lost_then_refused)

        with pytest.raises(OutcomeUnknown):
            store.put("object", NEW)

    def test_a_lost_update_that_another_replaced_is_unknown(
        self, moto: MotoServer, store: ObjectStore, prefix: str
    ) -> None:
        other = client(moto, prefix)
        tag = store.put("head", OLD)

        def replace_before_the_look(call: StoreCall) -> None:
            if call.number == 2:
                other.put("head", OTHER)

        lost = [PlannedFault(fault=Fault.LOST, call=1)]
        moto.application.follow(lost, before_call=replace_before_the_look)

        with pytest.raises(OutcomeUnknown):
            store.put_if_match("head", NEW, tag=tag)

    def test_a_lost_create_is_known_by_its_bytes(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        strike(moto, Fault.LOST, Operation.PUT_IF_ABSENT, 1)

        tag = store.put_if_absent("slot", NEW)

        assert tag == store.get("slot").tag

    def test_a_look_that_fails_is_taken_again(self, moto: MotoServer, store: ObjectStore) -> None:
        faults = [
            PlannedFault(fault=Fault.LOST, call=1),
            PlannedFault(fault=Fault.BEFORE, operation=Operation.GET, times=3),
        ]
        moto.application.follow(faults)

        tag = store.put_if_absent("slot", NEW)

        assert tag == store.get("slot").tag

    def test_a_late_update_does_not_hide_behind_the_old_tag(
        self, moto: MotoServer, store: ObjectStore
    ) -> None:
        tag = store.put("head", OLD)
        strike(moto, Fault.LATE, Operation.PUT_IF_MATCH, 1)

        given = store.put_if_match("head", NEW, tag=tag)

        assert given == store.get("head").tag
        assert store.get("head").payload == NEW


def conditional(store: ObjectStore, operation: Operation, tag: str) -> str | None:
    if operation is Operation.PUT_IF_ABSENT:
        return store.put_if_absent("slot", NEW)
    return store.put_if_match("head", NEW, tag=tag)


def operations(server: MotoServer) -> list[Operation]:
    return [call.operation for call in server.application.calls]


def a_write(random: Random, store: ObjectStore, claim: bytes) -> tuple[str, bytes, object]:
    """Claim a slot, or add a claim to the ledger; gives where, the claim, and how it ended."""
    if random.random() < 0.5:
        slot = f"slots/{random.randrange(6)}"
        return slot, claim, outcome(lambda: store.put_if_absent(slot, claim))
    seen = store.get("ledger")
    added = seen.payload + claim
    return "ledger", claim, outcome(lambda: store.put_if_match("ledger", added, tag=seen.tag))


def answers_that_are_not_true(server: MotoServer, prefix: str, seed: int) -> tuple[int, int]:
    """Let writers race under a random plan; gives how many writes, and how many wrong answers."""
    random = Random(seed)
    calm = client(server, prefix)
    calm.put("ledger", b"")
    # A duplicate of an update whose object a third writer replaces at once is beyond telling.
    faults = {
        operation: [
            *ANSWERED_BY_THE_SERVER,
            *([] if operation is Operation.PUT_IF_MATCH else [Fault.TWICE]),
        ]
        for operation in (*CONDITIONAL, Operation.GET)
    }
    plan = [
        PlannedFault(fault=random.choice(faults[operation]), call=number, operation=operation)
        for number in range(1, 200)
        for operation in faults
        if random.random() < 0.25
    ]
    server.application.follow(plan)

    def write(writer: int) -> list[tuple[str, bytes, object]]:
        choices = Random(f"{seed} {writer}")
        store = client(server, prefix)
        return [a_write(choices, store, f"<{writer}:{turn}>".encode()) for turn in range(5)]

    with ThreadPoolExecutor(4) as threads:
        answers = [answer for run in threads.map(write, range(4)) for answer in run]
    calm.put("flush", b"")
    server.application.follow([])
    written = {info.path: calm.get(info.path).payload for info in calm.list("")}
    wrong = 0
    for path, claim, given in answers:
        times = written.get(path, b"").count(claim)
        allowed = {0, 1} if given is OutcomeUnknown else {1} if isinstance(given, str) else {0}
        wrong += times not in allowed
    return len(answers), wrong


def test_racing_writers_under_random_faults_are_told_the_truth(
    moto: MotoServer, prefix: str, scoreboard: Record
) -> None:
    gate = Gate("R16 S3 writes under random fault schedules, answers not true", 400, 10_000)
    for seed in gate.seeds():
        writes, wrong = answers_that_are_not_true(moto, f"{prefix}/{seed}", seed)
        gate.cases += writes
        gate.violations += wrong

    scoreboard(gate.line())
    assert gate.violations == 0
