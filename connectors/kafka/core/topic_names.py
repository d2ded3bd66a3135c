"""The topics of a service, by name."""

import msgspec

from connectors.port import Channel


class KafkaTopics(msgspec.Struct, frozen=True):
    """The input topic, the output topics, and the topics of orders; the latter are empty for a service without orders."""

    input: str
    notifications: str
    dead_letters: str
    orders: str = ""
    order_outcomes: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        names = (self.input, self.notifications, self.dead_letters, self.orders, self.order_outcomes)
        return tuple(dict.fromkeys(name for name in names if name))

    def output(self, channel: Channel) -> str:
        """Return the topic of a channel; empty for the outcomes of orders if there are no orders."""
        topics = {Channel.NOTIFICATIONS: self.notifications, Channel.DEAD_LETTERS: self.dead_letters}
        return topics.get(channel, self.order_outcomes)
