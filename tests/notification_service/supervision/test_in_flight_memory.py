"""What a supervisor reads in the shared memory of its worker, also after the worker died during a call."""

import os

import pytest
from harness.driving import Envelopes
from msgspec.structs import replace

from notification_service.supervision.in_flight_memory import InFlightMemory, identity_of, new_descriptor
from resequencer.in_flight import MAX_THREADS, CallKind
from resequencer.record import Origin, Partition, Record


@pytest.fixture
def shared():
    """The shared memory as worker and supervisor have it."""
    descriptor = new_descriptor()
    yield InFlightMemory(descriptor), InFlightMemory(descriptor)
    os.close(descriptor)


@pytest.fixture
def envelope():
    return Envelopes()(1)


def test_nothing_is_in_flight_before_the_first_call_and_after_each(shared, envelope):
    worker, supervisor = (each.turn for each in shared)
    assert supervisor.find() is None
    worker.take(envelope, CallKind.HANDLING)
    worker.clear()
    assert supervisor.find() is None


def test_the_supervisor_sees_what_is_in_flight_and_which_call_it_is(shared, envelope):
    worker, supervisor = (each.turn for each in shared)
    worker.take(envelope, CallKind.ASKING)
    worker.clear()
    worker.take(envelope, CallKind.HANDLING)
    held = supervisor.find()
    assert (held.call, held.origin, held.unit, held.kind) == (2, envelope.record.origin, "uow-1", CallKind.HANDLING)
    assert held.identity == identity_of(envelope)
    assert str(held) == "handling IPF_PROCESSING_DATA-0@1 of unit 'uow-1'"
    assert held.places == {"unit": "uow-1", "partition": "IPF_PROCESSING_DATA-0", "position": "IPF_PROCESSING_DATA-0@1"}


@pytest.mark.parametrize("unit", ["u", "ü" * 256, "\U0001f4b6" * 256])
def test_every_unit_topic_and_offset_has_room(shared, envelope, unit):
    worker, supervisor = (each.turn for each in shared)
    origin = Origin(Partition("T" * 249, 2**31 - 1), 2**63 - 1)
    worker.take(replace(envelope, unit=unit, record=Record(origin, b"")), CallKind.HANDLING)
    held = supervisor.find()
    assert (held.origin, held.unit) == (origin, unit)


def test_a_shorter_unit_leaves_nothing_of_a_longer_one_before_it(shared, envelope):
    worker, supervisor = (each.turn for each in shared)
    for unit in ("a-long-unit", "short"):
        worker.take(replace(envelope, unit=unit), CallKind.HANDLING)
    assert supervisor.find().unit == "short"


def test_what_is_in_flight_is_still_seen_when_its_process_is_gone(shared, envelope):
    worker, supervisor = (each.turn for each in shared)
    child = os.fork()
    if child == 0:
        worker.take(envelope, CallKind.HANDLING)
        os._exit(7)
    os.waitpid(child, 0)
    assert supervisor.find().origin == envelope.record.origin


def test_without_a_supervisor_it_is_the_workers_own(envelope):
    first, second = InFlightMemory().turn, InFlightMemory().turn
    first.take(envelope, CallKind.HANDLING)
    assert second.find() is None


def test_each_thread_has_a_slot_of_its_own(shared, envelope):
    worker, supervisor = shared
    for number, slot in enumerate(worker.slots):
        slot.take(
            replace(envelope, unit="\U0001f4b6" * 256, record=Record(Origin(Partition("T" * 249, 0), number), b"")),
            CallKind.HANDLING,
        )
    assert [each.find().origin.offset for each in supervisor.slots] == list(range(3 + MAX_THREADS))
    worker.step.clear()
    assert [each.call for each in supervisor.slots] == [1, None, *[1] * (1 + MAX_THREADS)]
    supervisor.clear()
    assert [each.find() for each in worker.slots] == [None] * (3 + MAX_THREADS)


def test_of_a_crash_are_those_that_a_thread_executed_and_each_once(shared, envelope):
    worker, supervisor = shared
    waits = replace(envelope, record=Record(Origin(Partition("T", 0), 17), b""))
    worker.step.take(envelope, CallKind.HANDLING)
    worker.threads[0].take(envelope, CallKind.HANDLING)
    worker.overdue.take(waits, CallKind.HANDLING)
    assert [each.origin for each in supervisor.find_executed()] == [envelope.record.origin]
