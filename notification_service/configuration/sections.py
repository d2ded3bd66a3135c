"""The sections of a configuration: each field describes the key that it is made of. Durations are in ms, sizes in bytes.

If the settings of a package are a section or nearly one, the package describes the keys. Such settings are used here unchanged,
or with further keys of the same section added.
"""

from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from notification_service.aggregation.settings import AggregationSettings
from notification_service.bridge.settings import BridgeSettings
from notification_service.connectors.jms.settings import JmsSinkSettings, JmsSourceSettings, XmsSinkSettings
from notification_service.connectors.mqtt.settings import MqttSinkSettings
from notification_service.console.access.settings import HttpSettings
from notification_service.delivery.settings import DeliverySettings
from notification_service.events.own_data import LATEST_OBJECTS_NAME, NO_DATA_NAME
from notification_service.events.pass_through import PASS_THROUGH, PAYMENTS
from notification_service.events.settings import IPF, EventsSettings
from notification_service.payments.strategies import STRATEGIES
from notification_service.payments.target_types import TARGET_TYPES
from resequencer.in_flight import MAX_THREADS
from resequencer.keys.configuration_key import Key, OpenSection, Section
from resequencer.keys.list_types import Choices, Names, Wholes
from resequencer.keys.value_types import (
    Choice,
    Duration,
    FilePath,
    FirstNumber,
    Location,
    OptionOrForeign,
    Size,
    Switch,
    Text,
    TopicName,
    Whole,
)
from resequencer.settings import LearnedTimeout, ResequencerSettings
from resequencer.strategies.window import OrderBy
from storage.infinispan.storage import ServerSettings
from storage.redis.settings import RedisServerSettings


class Trigger(StrEnum):
    OPERATOR_DRIVEN = "operator-driven"
    PERIODIC = "periodic"


class RegionSettings(msgspec.Struct, frozen=True):
    """When an interval of a region ends, and how long drain and reset may take.

    `trigger_count` None: as many records as a poll takes at most. After `max_resets` resets in a row the region waits for an
    operator.
    """

    trigger: Annotated[Trigger, Key(Choice(tuple(Trigger)))]
    trigger_count: Annotated[int | None, Key(Whole(1, 100_000, "batch-size of the ingress"))]
    period_ms: Annotated[int, Key(Duration("10ms", "5s"))]
    drain_timeout_ms: Annotated[int, Key(Duration("1s", "1h"), "drain-timeout")]
    reset_timeout_ms: Annotated[int, Key(Duration("1s", "1h"), "reset-timeout")]
    max_resets: Annotated[int, Key(Whole(1, 1_000), "max-consecutive-reset-attempts")]


ClientOptions = tuple[tuple[str, str | int | float | bool], ...]
"""Options of a Kafka client by their Kafka names; a text that may be a secret is a `Secret`."""

_NOTIFICATION = "payment-status-notification"


class TransportType(StrEnum):
    KAFKA = "kafka"
    FILE = "file"
    JMS = "jms"
    MQTT = "mqtt"
    XMS = "xms"


SOURCES = (TransportType.KAFKA, TransportType.FILE, TransportType.JMS)
"""The kinds that can be read again from a position, or that keep what is not acknowledged and deliver it again in order."""

_DATA_HANDLER = OptionOrForeign(
    (LATEST_OBJECTS_NAME, NO_DATA_NAME), "Class", f"{LATEST_OBJECTS_NAME} with events.format = ipf, else {NO_DATA_NAME}"
)
_BRIDGED = "mqtt and xms cannot begin a region: a bridge reads them and appends to kafka or file, see ipf.bridge"


class StorageType(StrEnum):
    """`cache` is another name for `infinispan` and is that here."""

    NONE = "none"
    EMBEDDED = "embedded"
    REDIS = "redis"
    INFINISPAN = "infinispan"

    @classmethod
    def _missing_(cls, value: object) -> "StorageType | None":
        return cls.INFINISPAN if value == "cache" else None


class Acknowledge(StrEnum):
    WHEN_SETTLED = "when-settled"
    WHEN_HANDLED = "when-handled"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class Ingress(msgspec.Struct, frozen=True):
    """`batch_size` is the number of records that a poll takes at most; with `archive_every_ms` None only people archive.

    `kafka_partitions` are the numbers of the partitions that this service reads; if empty, the group shares all out.
    """

    transport: Annotated[TransportType, Key(Choice(SOURCES, remark=_BRIDGED))]
    batch_size: Annotated[int, Key(Whole(1, 100_000))]
    max_record_bytes: Annotated[int, Key(Size("1K", "64M"))]
    topic: Annotated[str, Key(TopicName(), "kafka.consumer.topic")]
    kafka_clients: Annotated[ClientOptions, OpenSection("kafka.consumer.kafka-clients")]
    kafka_partitions: Annotated[tuple[int, ...], Key(Wholes(0, 999_999, "the group shares them out"), "kafka.partitions")]
    jms: Annotated[JmsSourceSettings, Section("jms")]
    file_directory: Annotated[Path, Key(FilePath("<run-directory>/in"), "file.directory")]
    archive_directory: Annotated[Path, Key(FilePath("<run-directory>/archive"), "file.archive-directory")]
    archive_every_ms: Annotated[int | None, Key(Duration("1s", "7d", "never by itself"), "file.archive-every")]
    events: Annotated[EventsSettings, Section("events")]


class Notifications(msgspec.Struct, frozen=True):
    """`target_type` is report, report-xml, produced-report or `package.module:callable`; `handler` is payments,
    pass-through or `package.module:Class`; `data_handler` is latest-objects, none or `package.module:Class`, None: by the format.

    `rotate_bytes` None: outputs are never rotated. `notifications_kept` None: rotated notifications are never deleted.
    """

    run_directory: Annotated[Path, Key(FilePath("run/<name of the configuration file>"))]
    transport: Annotated[TransportType, Key(Choice(tuple(TransportType)))]
    further_transports: Annotated[tuple[str, ...], Key(Choices(tuple(TransportType)))]
    topic: Annotated[str, Key(TopicName(), "kafka.producer.topic")]
    kafka_clients: Annotated[ClientOptions, OpenSection("kafka.producer.kafka-clients")]
    markers_topic: Annotated[str, Key(TopicName(), "kafka.markers.topic")]
    jms: Annotated[JmsSinkSettings, Section("jms")]
    mqtt: Annotated[MqttSinkSettings, Section("mqtt")]
    xms: Annotated[XmsSinkSettings, Section("xms")]
    output_directory: Annotated[Path, Key(FilePath("<run-directory>/out"), "file.directory")]
    rotate_bytes: Annotated[int | None, Key(Size("1M", "1024G", "never"), "file.rotate-at")]
    notifications_kept: Annotated[int | None, Key(Whole(1, 1_000_000, "all of them"), "file.keep-notifications")]
    dead_letters_topic: Annotated[str, Key(TopicName(), "dead-letters.topic")]
    target_type: Annotated[str, Key(Choice(TARGET_TYPES, "callable"))]
    handler: Annotated[str, Key(OptionOrForeign((PAYMENTS, PASS_THROUGH), "Class"))]
    data_handler: Annotated[str | None, Key(_DATA_HANDLER)]
    settings: Annotated[Path, Key(FilePath())]


class Orders(msgspec.Struct, frozen=True):
    """Where operators' orders are given and their outcomes published. The topics are for transport kafka.

    A release or a skip waits for unread records for `backlog_wait_ms` at most.
    """

    is_enabled: Annotated[bool, Key(Switch(), "enabled")]
    topic: Annotated[str, Key(TopicName())]
    outcomes_topic: Annotated[str, Key(TopicName())]
    directory: Annotated[Path, Key(FilePath("<run-directory>/orders"), "file.directory")]
    backlog_wait_ms: Annotated[int, Key(Duration("1s", "24h"))]


class Lookup(msgspec.Struct, frozen=True):
    """`is_required`: the service does not start without a release. Else it reads the settings file until there is one."""

    directory: Annotated[Path, Key(FilePath("<run-directory>/lookups"))]
    is_required: bool
    sources: Annotated[Path, Key(FilePath())]
    check_every_ms: Annotated[int, Key(Duration("100ms", "1h"))]
    keep: Annotated[int, Key(Whole(1, 1_000))]


class RecordsArchive(msgspec.Struct, frozen=True):
    """The archive of the topics; `location` is a path or a URL of Hadoop's."""

    location: Annotated[str, Key(Location("<run-directory>/records"), "directory")]
    every_ms: Annotated[int, Key(Duration("1s", "1d"))]
    batch_records: Annotated[int, Key(Whole(1, 100_000_000), "batch-size")]


class Resequencers(ResequencerSettings, frozen=True, kw_only=True):
    """The settings of units, and others of the same section. `strategy` may be `package.module:Class`."""

    storage_type: Annotated[StorageType, Key(Choice((*StorageType, "cache"), remark="cache is another name for infinispan"))]
    strategy: Annotated[str, Key(Choice(tuple(STRATEGIES), "Class"))]
    first_sequence: Annotated[int | None, Key(FirstNumber())]
    required_parts: Annotated[tuple[str, ...], Key(Names('a list of different names, such as ["order.created"]'))]
    order_by: Annotated[OrderBy, Key(Choice(tuple(OrderBy)))]
    reorder_window_ms: Annotated[int, Key(Duration("1ms", "30d"))]
    custom_data_keys: Annotated[tuple[str, ...], Key(Names())]
    pds_data_keys: Annotated[tuple[str, ...], Key(Names())]
    handling_limit_ms: Annotated[int, Key(Duration("100ms", "1h"))]
    handling_threads: Annotated[int, Key(Whole(0, MAX_THREADS))]
    handling_concurrency: Annotated[int, Key(Whole(1, 1_000))]
    idle_timeout_ms: Annotated[int, Key(Duration("1ms", "1d"))]
    acknowledge: Annotated[Acknowledge, Key(Choice(tuple(Acknowledge)))]
    acknowledge_every_ms: Annotated[int, Key(Duration("0s", "1h"))]
    retention_ms: Annotated[int, Key(Duration("1s", "365d"))]
    stash_limit_bytes_per_worker: Annotated[int, Key(Size("1M", "1024G"), "stash-limit.bytes-per-worker")]

    @cached_property
    def deadline_ms(self) -> int:
        """How long a stashed envelope may wait; with WINDOW this is the window."""
        return self.reorder_window_ms if self.strategy == "WINDOW" else super().deadline_ms

    @cached_property
    def learned(self) -> LearnedTimeout | None:
        """The bounds of the waits, if they are learned; those of WINDOW are its window."""
        return None if self.strategy == "WINDOW" else super().learned


class Storages(msgspec.Struct, frozen=True):
    """The settings of each storage that can be chosen."""

    namespace: Annotated[str, Key(Text(r"[A-Za-z0-9._-]{1,100}", "1 to 100 letters, digits, dots, underscores and hyphens"))]
    embedded_file: Annotated[Path, Key(FilePath("<run-directory>/state.db"), "embedded.file")]
    redis: Annotated[RedisServerSettings, Section("redis")]
    infinispan: Annotated[ServerSettings, Section("infinispan")]


class Logging(msgspec.Struct, frozen=True):
    """`level` is debug, info, warning or error."""

    format: Annotated[LogFormat, Key(Choice(tuple(LogFormat)))]
    level: Annotated[str, Key(Choice(("debug", "info", "warning", "error")))]


class Sections(msgspec.Struct, frozen=True, kw_only=True):
    """All sections of the configuration."""

    ingress: Annotated[Ingress, Section("ipf.processing-data.ingress")]
    bridge: Annotated[BridgeSettings, Section("ipf.bridge")]
    notification: Annotated[Notifications, Section(_NOTIFICATION)]
    region: Annotated[RegionSettings, Section(f"{_NOTIFICATION}.region")]
    orders: Annotated[Orders, Section(f"{_NOTIFICATION}.orders")]
    aggregation: Annotated[AggregationSettings, Section(f"{_NOTIFICATION}.aggregation")]
    lookups: Annotated[Lookup, Section(f"{_NOTIFICATION}.lookups")]
    archive: Annotated[RecordsArchive, Section(f"{_NOTIFICATION}.archive")]
    resequencer: Annotated[Resequencers, Section(f"{_NOTIFICATION}.resequencer")]
    storage: Annotated[Storages, Section(f"{_NOTIFICATION}.storage")]
    worker_count: Annotated[int, Key(Whole(1, 256), f"{_NOTIFICATION}.worker.count")]
    restart_pause_ms: Annotated[int, Key(Duration("1ms", "10m"), f"{_NOTIFICATION}.worker.restart-pause")]
    stale_after_ms: Annotated[int, Key(Duration("2s", "10m"), f"{_NOTIFICATION}.worker.stale-after")]
    clock_trusted_after_ms: Annotated[int, Key(Duration("0s", "1d"), f"{_NOTIFICATION}.clock.trusted-after")]
    delivery: Annotated[DeliverySettings, Section(f"{_NOTIFICATION}.delivery")]
    http: Annotated[HttpSettings, Section(f"{_NOTIFICATION}.http")]
    logging: Annotated[Logging, Section(f"{_NOTIFICATION}.logging")]

    @property
    def counts_payments(self) -> bool:
        """Whether the statuses of payments are facts, and the payments of messages are counted: only IPF's envelopes have any."""
        return self.aggregation.is_enabled and self.ingress.events.format == IPF
