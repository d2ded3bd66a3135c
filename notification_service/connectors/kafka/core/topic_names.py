"""The topics of a service, by name."""

import msgspec

from guardian.ports import Channel

_FIELDS = {
    Channel.NOTIFICATIONS: "notifications",
    Channel.DEAD_LETTERS: "dead_letters",
    Channel.ORDER_OUTCOMES: "order_outcomes",
    Channel.FACTS: "facts",
    Channel.VALUES: "values",
}


KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""The configuration of a topic that loses no record, whatever brokers do by default."""


class KafkaTopics(msgspec.Struct, frozen=True):
    """The input topic, the output topics, the topics of orders and of facts, and the topic of a store's values.

    All but the first three are empty where there is no such topic. `reports` are those on groups, for programs that copy or judge
    what all of a service has written.
    """

    input: str
    notifications: str
    dead_letters: str
    orders: str = ""
    order_outcomes: str = ""
    facts: str = ""
    values: str = ""
    reports: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        optional = (self.orders, self.order_outcomes, self.facts, self.values, self.reports)
        return tuple(dict.fromkeys(name for name in (self.input, self.notifications, self.dead_letters, *optional) if name))

    def output(self, channel: Channel) -> str:
        """Return the topic of a channel; empty if there is none for it."""
        topic: str = getattr(self, _FIELDS[channel])
        return topic

    def without_facts(self) -> "KafkaTopics":
        """Return the other topics."""
        return msgspec.structs.replace(self, facts="")
