"""Time limits for calls in which the client itself would wait without end."""

from threading import Event

import pytest
from kafka.errors import KafkaTimeoutError

from notification_service.connectors.kafka.client import Bounded


def test_it_returns_and_raises_what_the_call_does() -> None:
    bounded = Bounded()
    assert [bounded.call(lambda each=each: each, 60_000) for each in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        bounded.call(lambda: 1 // 0, 60_000)
    bounded.close()


def test_a_call_that_does_not_come_back_is_given_up() -> None:
    bounded, never = Bounded(), Event()
    with pytest.raises(KafkaTimeoutError, match="no answer within 1 ms"):
        bounded.call(never.wait, 1)
    never.set()
    bounded.close()
