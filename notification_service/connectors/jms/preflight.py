"""Checks a broker for what the service will need. It takes no message and sends none."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from guardian.ports import TransportRefused
from notification_service.connectors.jms.settings import (
    BrokerSettings,
    JmsSinkSettings,
    JmsSourceSettings,
    XmsSinkSettings,
    XmsSourceSettings,
)
from notification_service.connectors.optional_clients import connect_jms
from resequencer.errors import ResequencerError

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io

_Link = Callable[["Io"], Any]


def preflight_source(settings: JmsSourceSettings) -> None:
    """Check the queues of all partitions, the selectors, and the right to consume.

    Raises:
        ExceptionGroup: Something is missing or refused; it holds one error for each queue.
        TransportUnavailable, TransportWithheld: The broker does not answer, or refuses the login.
    """
    _check(settings, (partial(_receive, each.queue, each.selector) for each in settings.partitions))


def preflight_sink(settings: JmsSinkSettings) -> None:
    """Check the queues, the rights to send, and transactions. The queue of markers is also consumed from.

    Raises: as `preflight_source`.
    """
    queues = (settings.notifications, settings.dead_letters, settings.markers)
    _check(settings, (*(partial(_send, each) for each in queues), partial(_receive, settings.markers, ""), _transact))


def preflight_queue(settings: XmsSourceSettings) -> None:
    """Check the queue, which is opened with the capability `queue`, and the right to consume.

    Raises: as `preflight_source`, but one error alone is not in a group.
    """
    with closing(connect_jms(settings)) as connection:
        connection.call(partial(_receive, settings.queue, "", is_queue=True))


def preflight_xms_sink(settings: XmsSinkSettings) -> None:
    """Check the queues and the rights to send.

    Raises: as `preflight_source`.
    """
    queues = (settings.notifications, settings.dead_letters)
    _check(settings, tuple(partial(_send, each, is_queue=True) for each in queues))


def _check(broker: BrokerSettings, tries: Iterator[_Link] | tuple[_Link, ...]) -> None:
    problems: dict[str, ResequencerError] = {}
    with closing(connect_jms(broker)) as connection:
        for each in tries:
            try:
                connection.call(each)
            except TransportRefused as error:
                problems[str(error)] = error
    if problems:
        raise ExceptionGroup("refused", list(problems.values()))


def _receive(queue: str, selector: str, io: "Io", *, is_queue: bool = False) -> None:
    """Open and close a link without credit: nothing comes by it."""
    from notification_service.connectors.jms.queue_export import Browser

    io.open_receiver(queue, selector, Browser(lambda *_: None), is_queue=is_queue).close()


def _send(queue: str, io: "Io", *, is_queue: bool = False) -> None:
    from notification_service.connectors.jms.transaction import SenderHandler

    io.open_sender(queue, SenderHandler(), is_queue=is_queue).close()


def _transact(io: "Io") -> None:
    transaction = io.transaction()
    transaction.abort()
    io.wait(lambda: transaction.is_ended, "a transaction")
