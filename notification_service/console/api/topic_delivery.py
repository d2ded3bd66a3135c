"""Delivery straight from topics: what an operator orders about blocked records. `/delivery` lists them."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from notification_service.console import topic_deliveries
from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console

Name = Annotated[str, Meta(min_length=1, max_length=1_024)]
Because = Annotated[str, Meta(min_length=1, max_length=topic_deliveries.MAX_BECAUSE)]


class SkippedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blocked record of a topic: its receiver, its `position` (TOPIC-PARTITION@OFFSET), and why it is given up."""

    receiver: Name
    position: Name
    because: Because


class OrderedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `partition` (TOPIC-PARTITION) that is delivered straight from its topic, its receiver, and why this is ordered."""

    receiver: Name
    partition: Name
    because: Because


class Ordered(msgspec.Struct, frozen=True):
    """What came of an order for a partition. If no worker has executed it yet, this says so: its next owner will."""

    outcome: str


def topic_delivery_operations(console: Console) -> list[Operation]:
    def skip(request: Request, told: SkippedRecord) -> Ordered:
        return Ordered(topic_deliveries.skip(console, request, told.receiver, told.position, told.because))

    def skip_all(request: Request, told: OrderedPartition) -> Ordered:
        return Ordered(topic_deliveries.skip_all(console, request, told.receiver, told.partition, told.because))

    def block(request: Request, told: OrderedPartition) -> Ordered:
        return Ordered(topic_deliveries.block(console, request, told.receiver, told.partition, told.because))

    return [
        change_of("/delivery/skip", "skip", skip, Ordered, "Make a blocked record of a topic a dead letter", SkippedRecord),
        change_of("/delivery/skip-all", "skip-all", skip_all, Ordered, "Skip all that fails in a partition", OrderedPartition),
        change_of("/delivery/block", "block", block, Ordered, "Try again what fails in a partition", OrderedPartition),
    ]
