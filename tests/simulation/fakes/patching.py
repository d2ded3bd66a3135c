"""Replaces kafka-python's clients by the fakes, and the transport's clock by one that never stands still."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from simulation.fakes.broker import FakeBroker
from simulation.fakes.clients import FakeAdmin, FakeConsumer, FakeProducer, Line

from notification_service.connectors.kafka.client import Bounded
from notification_service.connectors.kafka.core.fencing import Fences
from notification_service.connectors.kafka.producer import TransactionalProducer

_MAKERS = ("consumer", "log_reader", "producer", "topics")
_CLOCKED = ("reading", "log_reader", "publisher", "producer", "topics")
_PER_SECOND = 10


@contextmanager
def fake_kafka(broker: FakeBroker, line: Callable[[], Line]) -> Iterator[None]:
    """Patch the clients and the clock within the context. For each new client, `line` returns the line of its worker.

    Each look at the clock takes a tenth of a second, so every wait ends. Repeated fencing
    is never taken for a second worker with the same transactional id.
    """
    looks = count()

    def make_client(_: str, make: type, options: Mapping[str, Any]) -> Any:
        if issubclass(make, KafkaProducer):
            return FakeProducer(broker, line(), options["transactional_id"])
        if issubclass(make, KafkaConsumer):
            return FakeConsumer(broker, line(), options)
        assert issubclass(make, KafkaAdminClient)
        return FakeAdmin(broker)

    with ExitStack() as stack:
        for module in _MAKERS:
            stack.enter_context(patch(f"notification_service.connectors.kafka.{module}.make_client", make_client))
        for module in _CLOCKED:
            stack.enter_context(
                patch(f"notification_service.connectors.kafka.{module}.monotonic", lambda: next(looks) / _PER_SECOND)
            )
        stack.enter_context(patch.object(Fences, "has_twin", lambda *_: False))
        stack.enter_context(patch.object(Bounded, "call", lambda _, call, __: call()))
        stack.enter_context(patch.object(TransactionalProducer, "discard", lambda _: None))
        yield
