"""A stage on a real broker for sources and sinks that are not one transport."""

from msgspec.structs import replace

from connectors.kafka.core.topic_names import KafkaTopics
from connectors.kafka.settings import KafkaSettings
from tests.connectors.kafka.stage import KafkaStage

PATIENT = {"default.api.timeout.ms": 20_000}
PATIENT_PRODUCER = {"transaction.timeout.ms": 15_000}


class RegionStage(KafkaStage):
    """`markers` is the topic of the markers, which is missing at first."""

    @property
    def markers(self) -> str:
        return self.topics.notifications.replace("out-", "markers-")

    def source_settings(self, slot: object = None) -> KafkaSettings:
        settings = replace(self.settings(slot, PATIENT, PATIENT_PRODUCER), undecided_wait_ms=20_000)
        return replace(settings, topics=KafkaTopics(*[self.topics.input] * 3))

    def sink_settings(self, **producer: object) -> KafkaSettings:
        settings = replace(self.settings("sink", PATIENT, PATIENT_PRODUCER | producer), undecided_wait_ms=20_000)
        return replace(settings, topics=replace(self.topics, input=self.markers))
