"""The topics of a service, by name."""

import msgspec

from connectors.port import Channel


class KafkaTopics(msgspec.Struct, frozen=True):
    """The input topic, the output topics, the topics of orders, and the topic of a store's values.

    Those of orders are empty for a service without orders, the last one for all but a store.
    """

    input: str
    notifications: str
    dead_letters: str
    orders: str = ""
    order_outcomes: str = ""
    values: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        names = (self.input, self.notifications, self.dead_letters, self.orders, self.order_outcomes, self.values)
        return tuple(dict.fromkeys(name for name in names if name))

    def output(self, channel: Channel) -> str:
        """Return the topic of a channel; empty if this service has no such topic."""
        topics = {
            Channel.NOTIFICATIONS: self.notifications,
            Channel.DEAD_LETTERS: self.dead_letters,
            Channel.ORDER_OUTCOMES: self.order_outcomes,
            Channel.VALUES: self.values,
        }
        return topics[channel]
