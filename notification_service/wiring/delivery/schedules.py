"""Makes the runners of schedules from the configuration."""

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import kafka_settings
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.schedules.keys import make_keys
from notification_service.delivery.schedules.ledger_sink import LedgerSink
from notification_service.delivery.schedules.runner import ScheduleRunner
from notification_service.delivery.schedules.settings import Schedule
from notification_service.delivery.schedules.sink import RequestSink
from notification_service.lookups.directory import LookupsDirectory
from resequencer.steady_clock import SteadyClock


def make_runner(
    configuration: Configuration, name: str, schedule: Schedule, ledger: Ledger, owner: str, clock: SteadyClock
) -> ScheduleRunner:
    """Return the runner of a schedule; nothing is connected yet."""
    keys = make_keys(schedule.keys, LookupsDirectory(configuration.lookups.directory))
    return ScheduleRunner(name, schedule, keys, _sink_of(configuration, name, schedule, ledger, owner), clock)


def _sink_of(configuration: Configuration, name: str, schedule: Schedule, ledger: Ledger, owner: str) -> RequestSink:
    if schedule.receiver:
        return LedgerSink(ledger, name, schedule.receiver, owner, schedule.waiting)
    from notification_service.delivery.schedules.topic_sink import (
        TopicSink,  # Kafka's client takes a third of a second to import.
    )

    group = f"{configuration.storage.namespace}-schedule-{name}"
    return TopicSink(kafka_settings(configuration), name, schedule.topic, group)
