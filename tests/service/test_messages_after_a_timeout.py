"""What messages that come after a time-out cause: the documentation, clause by clause. Decision 58 has what it says.

There the actor then unstashes all, a message that comes later makes a new actor, and that one sends everything once more. Here a
new actor continues with what is stored of the unit, so nothing is sent twice.
"""

from collections.abc import Callable

import pytest
from harness.service_under_test import DEADLINE_MS, P0, Service

from resequencer.settings import ResequencerSettings

PARTS = {1: ("PAIN_001",), 2: ("PAIN_001_PAYMENT_INSTRUCTION",), 3: ("PAIN_001_PAYMENT_TRANSACTION",)}
"""What each message of the unit brings, by its number. With all three it is complete."""

MISSING = "PAIN_001_PAYMENT_TRANSACTION"


def send(service: Service, *numbers: int) -> None:
    for number in numbers:
        service.tell("u", number, mds=PARTS[number])


@pytest.fixture(params=["embedded", "none"])
def timed_out(request: pytest.FixtureRequest, new_service: Callable[..., Service]) -> Service:
    """A service whose unit has got messages 1 and 2, and whose time-out is over before message 3."""
    service = new_service(strategy="FULL_PAIN001", storage=request.param, acknowledge_handled=request.param == "none")
    send(service, 1, 2)
    service.run()
    assert service.notifications == []
    service.run_after(DEADLINE_MS)
    return service


def test_at_the_timeout_all_messages_are_unstashed(timed_out: Service) -> None:
    assert [(each.sequence, each.incomplete) for each in timed_out.notifications] == [(1, MISSING), (2, MISSING)]
    assert timed_out.report_units().stashed == 0


def test_the_actor_ends_with_the_timeout_if_the_unit_is_stored(new_service: Callable[..., Service]) -> None:
    service = new_service(strategy="FULL_PAIN001")
    send(service, 1)
    service.run()
    assert service.servers.actors.active() == {P0: {"u"}}
    service.run_after(DEADLINE_MS)
    assert service.servers.actors.active() == {}


def test_a_message_after_the_timeout_completes_the_stored_unit_and_nothing_is_sent_twice(timed_out: Service) -> None:
    send(timed_out, 3)
    timed_out.run()
    assert timed_out.sequences("u") == [1, 2, 3]
    assert timed_out.notifications[-1].incomplete is None
    assert timed_out.notifications[-1].data == tuple(sorted(name for names in PARTS.values() for name in names))


@pytest.mark.parametrize("pause_ms", [0, 60_000])
def test_messages_that_come_again_after_the_timeout_are_not_sent_again(timed_out: Service, pause_ms: int) -> None:
    """The sender did not see an answer in time, and sends all of them once more, at once or later."""
    timed_out.run_after(pause_ms)
    send(timed_out, 1, 2, 3, 1, 2, 3)
    timed_out.run()
    timed_out.run_after(DEADLINE_MS)
    assert timed_out.sequences("u") == [1, 2, 3]
    assert timed_out.dead == []


def test_after_the_timeout_and_a_kill_nothing_is_sent_twice_either(timed_out: Service) -> None:
    timed_out.kill()
    timed_out.start()
    send(timed_out, 1, 2, 3)
    timed_out.run()
    timed_out.run_after(DEADLINE_MS)
    assert timed_out.sequences("u") == [1, 2, 3]


def test_an_attempt_that_succeeds_after_failed_ones_sends_once(new_service: Callable[..., Service]) -> None:
    """The three attempts of the time keys: after 3 and 9 s; the deadline of what waits behind the first message is suspended."""
    service = new_service(strategy="FULL_PAIN001")
    service.handler.away_until["u#A#1"] = service.clock.now() + 9_000
    send(service, 1, 2, 3)
    service.run()
    assert service.sequences("u") == [3], "the one that completes the unit is handled first"
    service.run_after(3_000)
    service.run_after(6_000)
    send(service, 1, 2, 3)
    service.run_after(DEADLINE_MS)
    assert service.sequences("u") == [3, 1, 2]
    assert service.dead == []


def test_the_deadline_is_the_sum_of_all_delays_by_default() -> None:
    """3 s, 6 s and 12 s: an envelope that waits behind one that fails for good still finds its unit."""
    settings = ResequencerSettings()
    assert [settings.delay_ms(attempt) for attempt in (1, 2, 3)] == [3_000, 6_000, 12_000]
    assert settings.deadline_ms == DEADLINE_MS == 21_000
