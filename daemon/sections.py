"""The sections of a configuration as typed values: names in snake case, durations in ms, sizes in bytes."""

from enum import StrEnum
from pathlib import Path

import msgspec

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
    """`batch_size` is the number of records that a poll takes at most."""

    transport: TransportType
    batch_size: int
    max_record_bytes: int
    topic: str
    kafka_clients: ClientOptions
    file_directory: Path


class Notifications(msgspec.Struct, frozen=True):
    """`target_type` is report, report-xml, produced-report or `package.module:callable`."""

    run_directory: Path
    transport: TransportType
    topic: str
    kafka_clients: ClientOptions
    output_directory: Path
    dead_letters_topic: str
    target_type: str
    settings: Path


class Resequencers(msgspec.Struct, frozen=True):
    """`strategy` may be `package.module:Class`; `stash_timeout_ms` None means the sum of the attempts' delays."""

    storage_type: StorageType
    strategy: str
    custom_data_keys: tuple[str, ...]
    pds_data_keys: tuple[str, ...]
    processing_timeout_ms: int
    max_attempts: int
    backoff_factor: float
    jitter_factor: float
    idle_timeout_ms: int
    stash_timeout_ms: int | None
    acknowledge: Acknowledge
    retention_ms: int
    stash_limit_envelopes_per_unit: int
    stash_limit_bytes_per_worker: int


class Storages(msgspec.Struct, frozen=True):
    """URLs and the password are `Secret`s: texts that a `repr` does not show."""

    namespace: str
    embedded_file: Path
    redis_url: str
    infinispan_url: str
    infinispan_cache: str
    infinispan_username: str
    infinispan_password: str


class Http(msgspec.Struct, frozen=True):
    """`port` 0 lets the system choose a free one."""

    host: str
    port: int


class Logging(msgspec.Struct, frozen=True):
    """`level` is debug, info, warning or error."""

    format: LogFormat
    level: str
