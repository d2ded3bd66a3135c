"""Orders of an operator for a partition that is delivered straight from its topic, and their outcomes (docs/contract.md). Pure.

Orders and outcomes are in one topic, `TOPIC-GROUP-orders`; its partition N belongs to partition N of the source.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from guardian.headers import outcome_headers
from guardian.ports import Channel, OutputRecord
from resequencer.clock import Instant, instant_text
from resequencer.order import OrderText, ShortText
from resequencer.printable import printable
from resequencer.record import Partition


class DirectOrderKind(StrEnum):
    """`SKIP` makes one blocked record a dead letter. `SKIP_ALL` does so with all that fails, until `BLOCK` ends that."""

    SKIP = "skip"
    SKIP_ALL = "skip-all"
    BLOCK = "block"


class DirectResult(StrEnum):
    DONE = "done"
    REFUSED = "refused"


class DirectOrder(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, tag="order", tag_field="is", omit_defaults=True):
    """An order. `at` is an ISO 8601 instant. `offset` is that of the blocked record in the source, for `skip` alone."""

    id: ShortText
    order: DirectOrderKind
    by: ShortText
    because: OrderText
    at: ShortText
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None


class DirectOutcome(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, tag="outcome", tag_field="is"):
    """The outcome of an order. `text` says what was done, or why nothing was."""

    id: str
    result: DirectResult
    text: str
    at: str


_DECODER: msgspec.json.Decoder[DirectOrder | DirectOutcome] = msgspec.json.Decoder(DirectOrder | DirectOutcome)


def encode(told: DirectOrder | DirectOutcome) -> bytes:
    return msgspec.json.encode(told)


def decode(value: bytes) -> DirectOrder | DirectOutcome:
    """Return the order or the outcome.

    Raises:
        ValueError: The record is neither; the text says why.
    """
    try:
        found = _DECODER.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(printable(str(error))) from error
    if isinstance(found, DirectOrder) and found.order is DirectOrderKind.SKIP and found.offset is None:
        raise ValueError("skip needs offset")
    return found


def outcome_record(
    partition: Partition, number: int, order_id: str, result: DirectResult, text: str, now: Instant
) -> OutputRecord:
    """Return the record of an outcome: it goes to the partition of the order."""
    outcome = DirectOutcome(id=order_id, result=result, text=text, at=instant_text(now))
    headers = outcome_headers(order_id, result.value, partition)
    return OutputRecord(number, Channel.ORDER_OUTCOMES, order_id.encode(), headers, encode(outcome))
