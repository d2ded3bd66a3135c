"""The sections of a configuration as typed values: names in snake case, durations in ms, sizes in bytes."""

from enum import StrEnum
from pathlib import Path

import msgspec

from resequencer.settings import LearnedTimeout

ClientOptions = tuple[tuple[str, str | int | float | bool], ...]
"""Options of a Kafka client by their Kafka names; a text that may be a secret is a `Secret`."""


class TransportType(StrEnum):
    KAFKA = "kafka"
    FILE = "file"


class StorageType(StrEnum):
    """`cache` is another name for `infinispan` and is that here."""

    NONE = "none"
    EMBEDDED = "embedded"
    REDIS = "redis"
    INFINISPAN = "infinispan"


class Acknowledge(StrEnum):
    WHEN_SETTLED = "when-settled"
    WHEN_HANDLED = "when-handled"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class Ingress(msgspec.Struct, frozen=True):
    """`batch_size` is the number of records that a poll takes at most; with `archive_every_ms` None only people archive."""

    transport: TransportType
    batch_size: int
    max_record_bytes: int
    topic: str
    kafka_clients: ClientOptions
    file_directory: Path
    archive_directory: Path
    archive_every_ms: int | None


class Notifications(msgspec.Struct, frozen=True):
    """`target_type` is report, report-xml, produced-report or `package.module:callable`.

    With `rotate_bytes` None outputs are never rotated, with `notifications_kept` None none of them is ever deleted.
    """

    run_directory: Path
    transport: TransportType
    topic: str
    kafka_clients: ClientOptions
    output_directory: Path
    rotate_bytes: int | None
    notifications_kept: int | None
    dead_letters_topic: str
    target_type: str
    settings: Path


class Resequencers(msgspec.Struct, frozen=True):
    """`strategy` may be `package.module:Class`.

    `stash_timeout_ms` None means the sum of the attempts' delays, unless it is learned: then `learned_timeout` has the bounds.
    """

    storage_type: StorageType
    strategy: str
    custom_data_keys: tuple[str, ...]
    pds_data_keys: tuple[str, ...]
    processing_timeout_ms: int
    handling_limit_ms: int
    max_attempts: int
    backoff_factor: float
    jitter_factor: float
    idle_timeout_ms: int
    stash_timeout_ms: int | None
    learned_timeout: LearnedTimeout | None
    acknowledge: Acknowledge
    retention_ms: int
    stash_limit_envelopes_per_unit: int
    stash_limit_bytes_per_unit: int
    stash_limit_bytes_per_worker: int


class Lookup(msgspec.Struct, frozen=True):
    """Where `is_required`, nothing starts without a release; otherwise the settings are read until there is one."""

    directory: Path
    is_required: bool
    sources: Path
    check_every_ms: int
    keep: int


class RecordsArchive(msgspec.Struct, frozen=True):
    """The archive of the topics; `location` is a path or a URL of Hadoop's."""

    location: str
    every_ms: int
    batch_records: int


class Redis(msgspec.Struct, frozen=True):
    """URL and password are `Secret`s. A file that is None is not used, but for the authorities: the system's own are."""

    url: str
    username: str
    password: str
    timeout_ms: int
    wait_replicas: int
    ca_file: Path | None
    certificate_file: Path | None
    key_file: Path | None


class Infinispan(msgspec.Struct, frozen=True):
    """URL and password are `Secret`s. Without a `ca_file` the system's authorities are trusted."""

    url: str
    cache: str
    username: str
    password: str
    timeout_ms: int
    ca_file: Path | None


class Storages(msgspec.Struct, frozen=True):
    """The storages that can be chosen, each with what it is told."""

    namespace: str
    embedded_file: Path
    redis: Redis
    infinispan: Infinispan


class Http(msgspec.Struct, frozen=True):
    """`port` 0 lets the system choose a free one."""

    host: str
    port: int


class Logging(msgspec.Struct, frozen=True):
    """`level` is debug, info, warning or error."""

    format: LogFormat
    level: str
