"""The topics of a service, by name."""

import msgspec

from connectors.port import Channel


class KafkaTopics(msgspec.Struct, frozen=True):
    """The input topic, the output topics, and the topics of orders and of facts; these are empty for a service without them."""

    input: str
    notifications: str
    dead_letters: str
    orders: str = ""
    order_outcomes: str = ""
    facts: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        names = (self.input, self.notifications, self.dead_letters, self.orders, self.order_outcomes, self.facts)
        return tuple(dict.fromkeys(name for name in names if name))

    def output(self, channel: Channel) -> str:
        """Return the topic of a channel; empty if the service has none for it."""
        topics = {
            Channel.NOTIFICATIONS: self.notifications,
            Channel.DEAD_LETTERS: self.dead_letters,
            Channel.ORDER_OUTCOMES: self.order_outcomes,
            Channel.FACTS: self.facts,
        }
        return topics[channel]

    def without_facts(self) -> "KafkaTopics":
        """Return the topics of a program that does not use facts, and needs no rights on them."""
        return msgspec.structs.replace(self, facts="")
