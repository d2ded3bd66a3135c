"""The topics of a service, by name."""

import msgspec

from connectors.port import Channel


class KafkaTopics(msgspec.Struct, frozen=True):
    """The input topic and the output topics."""

    input: str
    notifications: str
    dead_letters: str

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.input, self.notifications, self.dead_letters)))

    def output(self, channel: Channel) -> str:
        return self.notifications if channel is Channel.NOTIFICATIONS else self.dead_letters
