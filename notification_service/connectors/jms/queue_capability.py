"""The capability `queue` of links: without it some brokers of AMQP 1.0, as IBM MQ, take the address for a topic."""

from typing import Any

from proton import symbol
from proton.reactor import ReceiverOption, SenderOption


class FromQueue(ReceiverOption):
    """The capability `queue` of a source."""

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("queue"))


class ToQueue(SenderOption):
    """The capability `queue` of a target: without it a broker may take the address for a topic."""

    def apply(self, sender: Any) -> None:
        sender.target.capabilities.put_object(symbol("queue"))
