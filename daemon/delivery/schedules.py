"""Makes the runners of schedules from the configuration."""

from daemon.configuration.configuration import Configuration
from daemon.configuration.kafka_settings import kafka_settings
from delivery.ledger.ledger import Ledger
from delivery.schedules.keys import make_keys
from delivery.schedules.ledger_sink import LedgerSink
from delivery.schedules.runner import ScheduleRunner
from delivery.schedules.settings import Schedule
from delivery.schedules.sink import RequestSink
from domain.steady_clock import SteadyClock
from enrichment.directory import LookupsDirectory


def make_runner(
    configuration: Configuration, name: str, schedule: Schedule, ledger: Ledger, owner: str, clock: SteadyClock
) -> ScheduleRunner:
    """Return the runner of a schedule; nothing is connected yet."""
    keys = make_keys(schedule.keys, LookupsDirectory(configuration.lookups.directory))
    return ScheduleRunner(name, schedule, keys, _sink_of(configuration, name, schedule, ledger, owner), clock)


def _sink_of(configuration: Configuration, name: str, schedule: Schedule, ledger: Ledger, owner: str) -> RequestSink:
    if schedule.receiver:
        return LedgerSink(ledger, name, schedule.receiver, owner, schedule.waiting)
    from delivery.schedules.topic_sink import TopicSink  # Kafka's client takes a third of a second to import.

    group = f"{configuration.storage.namespace}-schedule-{name}"
    return TopicSink(kafka_settings(configuration), name, schedule.topic, group)
