"""Deliveries straight from topics: what the workers of this machine report, and the orders of an operator."""

import secrets
from collections.abc import Iterable
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.console.access.identity import Identity
from notification_service.console.context import Console, identity_of
from notification_service.console.masking import answer_for
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, DirectResult
from notification_service.delivery.errors import OrderRefused, ReceiverUnknown
from notification_service.status.delivery import BlockedStatus, DeliveredPartition, DirectStatus
from resequencer.clock import instant_text
from resequencer.record import Origin, Partition

_WAIT_SECONDS = 10.0
MAX_BECAUSE = 1_000


def receivers_for(console: Console, identity: Identity) -> list[DirectStatus]:
    """Return each receiver, with the answers that this person may see. One of which no worker reports has no partitions."""
    reported = {each.receiver: each for each in console.sources.find_delivery().direct}
    return [_masked(identity, reported.get(name, DirectStatus(name))) for name in console.sources.direct_receivers]


def find_receiver(console: Console, identity: Identity, name: str) -> DirectStatus:
    """Return a receiver; an answer 404 if none of this name is delivered to straight from a topic."""
    found = next((each for each in receivers_for(console, identity) if each.receiver == name), None)
    if found is None:
        raise _not_found(console, name)
    return found


def skip(console: Console, request: Request, receiver: str, position: str, because: str) -> str:
    """Order that a blocked record becomes a dead letter. Return what came of it."""
    origin = Origin.find(position)
    if origin is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the position is TOPIC-PARTITION@OFFSET, such as NOTIFICATIONS-0@17")
    return _order(console, request, receiver, origin.partition, _Asked(DirectOrderKind.SKIP, because, origin.offset))


def skip_all(console: Console, request: Request, receiver: str, partition: str, because: str) -> str:
    """Order that all that fails in a partition becomes dead letters. Return what came of it."""
    return _order(console, request, receiver, _partition(partition), _Asked(DirectOrderKind.SKIP_ALL, because))


def block(console: Console, request: Request, receiver: str, partition: str, because: str) -> str:
    """Order that what fails in a partition is tried again. Return what came of it."""
    return _order(console, request, receiver, _partition(partition), _Asked(DirectOrderKind.BLOCK, because))


class _Asked(msgspec.Struct, frozen=True):
    kind: DirectOrderKind
    because: str
    offset: int | None = None


def _order(console: Console, request: Request, receiver: str, partition: Partition, asked: _Asked) -> str:
    """Write who does it, then give the order and wait for its outcome. What the owner refuses is answered with 409."""
    because = asked.because.strip()[:MAX_BECAUSE]
    if not because:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "say why; the reason is kept with your name")
    if receiver not in console.sources.direct_receivers:
        raise _not_found(console, receiver)
    place = str(partition) if asked.offset is None else str(Origin(partition, asked.offset))
    console.audit_log.note(request, f"delivery.{asked.kind.value}", receiver=receiver, place=place, because=because)
    order = DirectOrder(
        id=secrets.token_hex(16),
        order=asked.kind,
        by=identity_of(request).name,
        because=because,
        at=instant_text(console.sources.clock.now()),
        offset=asked.offset,
    )
    assert console.sources.order_delivery is not None, "there are such receivers"
    try:
        outcome = console.sources.order_delivery(receiver, partition, order, _WAIT_SECONDS)
    except OrderRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
    if outcome is None:
        return f"the order is given, and no worker has executed it within {_WAIT_SECONDS:g} s: the next owner of {partition} will"
    if outcome.result is DirectResult.REFUSED:
        raise HTTPException(HTTPStatus.CONFLICT, outcome.text)
    return outcome.text


def _not_found(console: Console, name: str) -> HTTPException:
    return HTTPException(HTTPStatus.NOT_FOUND, str(ReceiverUnknown(name, console.sources.direct_receivers)))


def _partition(text: str) -> Partition:
    found = Partition.find(text)
    if found is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the partition is TOPIC-PARTITION, such as NOTIFICATIONS-0")
    return found


def _masked(identity: Identity, status: DirectStatus) -> DirectStatus:
    reason = None if status.reason is None else answer_for(identity, status.reason)
    partitions = tuple(_masked_partition(identity, each) for each in status.partitions)
    return msgspec.structs.replace(status, reason=reason, partitions=partitions)


def _masked_partition(identity: Identity, partition: DeliveredPartition) -> DeliveredPartition:
    return msgspec.structs.replace(partition, records=tuple(_masked_records(identity, partition.records)))


def _masked_records(identity: Identity, records: Iterable[BlockedStatus]) -> Iterable[BlockedStatus]:
    return (msgspec.structs.replace(each, error=answer_for(identity, each.error)) for each in records)
