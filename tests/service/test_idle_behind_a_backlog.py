"""With storage none: after an outage all units have been idle for long, while their next envelopes are still unread."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
from harness.service_under_test import P0, Service

from guardian.ports import Polled, Transport
from resequencer.record import Partition

OUTAGE_MS = 40_000
"""Longer than the idle timeout."""


@pytest.fixture
def service(new_service: Callable[..., Service]) -> Service:
    return new_service(storage="none", acknowledge_handled=True, batch_size=1)


def test_a_unit_that_was_idle_in_an_outage_is_still_known_when_its_worker_dies_before_the_backlog_is_read(
    service: Service,
) -> None:
    service.tell("u", 1)
    service.run()
    service.tell("other", 1)
    service.tell("u", 2)
    service.clock.advance(OUTAGE_MS)
    service.cycle.run_once()
    service.kill()
    service.start().run()
    assert service.sequences("u") == [1, 2]


def test_the_position_goes_on_once_the_backlog_is_read(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    at = service.input_size()
    service.tell("other", 1, 2, 3)
    service.run_after(OUTAGE_MS)
    service.run_after(2_000)
    assert service.stored_positions == {0: at}


def test_a_unit_that_was_heard_of_in_the_backlog_holds_the_position_until_it_is_idle_again(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    service.tell("other", 1)
    service.tell("u", 2)
    service.run_after(OUTAGE_MS)
    service.run_after(2_000)
    assert service.stored_positions == {0: 0}
    service.run_after(OUTAGE_MS)
    service.run_after(2_000)
    assert service.stored_positions == {0: service.input_size()}


def test_a_unit_that_is_idle_lets_the_position_go_where_nothing_more_may_be_read(new_service: Callable[..., Service]) -> None:
    """Else the unit would wait for the position, and the position for the unit, for ever."""
    service = new_service(storage="none", acknowledge_handled=True, batch_size=1, done_characters=24)
    service.tell("u", 1)
    service.run()
    for number in range(30):
        service.tell(f"other-{number}", 2)
    service.clock.advance(OUTAGE_MS)
    for _ in range(60):
        service.run_after(OUTAGE_MS)
    assert service.stored_positions == {0: service.input_size()}


class Hanging:
    """A transport with a hanging producer's transaction after the position: the records there cannot be read yet."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        if not self.is_open:
            return self._inner.poll(max_records, timeout_ms, resting)
        polled = self._inner.poll(0, timeout_ms)
        return Polled((), {}, {P0: self.reached}, {P0: self._inner.end_offset(P0)} | polled.log_ends)

    def hang(self) -> None:
        self.reached, self.is_open = self._inner.end_offset(P0), True


def test_a_unit_of_which_more_may_lie_in_a_transaction_that_hangs_holds_the_position(new_service: Callable[..., Service]) -> None:
    service = new_service(storage="none", acknowledge_handled=True)
    service.stop()
    made: list[Hanging] = []
    service.around_transport = lambda transport: made.append(Hanging(transport)) or made[-1]  # type: ignore[func-returns-value]
    service.start()
    service.tell("u", 1, mds=("PAIN_001",))
    service.run()
    made[-1].hang()
    service.tell("u", 2)
    service.run_after(OUTAGE_MS)
    service.run_after(2_000)
    service.kill()
    service.start().run()
    assert [(each.sequence, each.data) for each in service.notifications] == [(1, ("PAIN_001",)), (2, ("PAIN_001",))]
