"""The configuration of a service, loaded once at start."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from daemon.configuration.constraints import doubtful_relations, find_learned_timeout, stash_timeout_ms
from daemon.configuration.effective import EffectiveValue, effective_values
from daemon.configuration.resolution import REFERENCE, SettledValues, settle
from daemon.configuration.schema import (
    ARCHIVE,
    CONSUMER_CLIENTS,
    INGRESS,
    LOOKUPS,
    NOTIFICATION,
    PRODUCER_CLIENTS,
    RESEQUENCER,
    STORAGE,
)
from daemon.configuration.sections import (
    Acknowledge,
    ClientOptions,
    Http,
    Infinispan,
    Ingress,
    LogFormat,
    Logging,
    Lookup,
    Notifications,
    RecordsArchive,
    Redis,
    Resequencers,
    Storages,
    StorageType,
    TransportType,
)
from daemon.configuration.shipped import find_shipped
from domain.errors import ConfigurationError

DEFAULT_FILE = Path("conf/application.conf")


class Configuration(msgspec.Struct, frozen=True):
    """Everything that can be configured, checked. `file` is the one it was read from.

    `effective` is what `check` prints; `warnings` are sentences about what is allowed but may not be meant.
    """

    file: Path
    ingress: Ingress
    notification: Notifications
    lookups: Lookup
    archive: RecordsArchive
    resequencer: Resequencers
    storage: Storages
    worker_count: int
    http: Http
    logging: Logging
    effective: tuple[EffectiveValue, ...] = ()
    warnings: tuple[str, ...] = ()

    def only_with_files(self, verb: str) -> ConfigurationError | None:
        """What a verb that works on files is told where there are none."""
        if self.ingress.transport is TransportType.FILE:
            return None
        text = f"{self.ingress.transport}: `{verb}` works on files; of a topic the brokers take what its retention says"
        return ConfigurationError(f"{INGRESS}.transport", text)


def load(file: Path = DEFAULT_FILE, overrides: Sequence[str] = ()) -> Configuration:
    """Read `file` over reference.conf, and `overrides` (`key=value`, the value in HOCON) over both.

    Raises:
        ConfigurationError: Something is refused; a `ConfigurationRefused` lists all there is.
    """
    found = find_shipped(file)
    settled = settle(found, overrides)
    values = settled.values
    return Configuration(
        file=found,
        ingress=_ingress(settled),
        notification=_notification(settled),
        lookups=_lookups(settled),
        archive=_archive(values),
        resequencer=_resequencer(values),
        storage=_storage(values),
        worker_count=values[f"{NOTIFICATION}.worker.count"],
        http=Http(values[f"{NOTIFICATION}.http.host"], values[f"{NOTIFICATION}.http.port"]),
        logging=Logging(LogFormat(values[f"{NOTIFICATION}.logging.format"]), values[f"{NOTIFICATION}.logging.level"]),
        effective=effective_values(settled),
        warnings=(*doubtful_relations(values), *_unused(settled)),
    )


def _unused(settled: SettledValues) -> Iterator[str]:
    """What was set and has no effect."""
    for name in ("host", "port"):
        path = f"{NOTIFICATION}.http.{name}"
        if settled.layers[path] != REFERENCE:
            yield f"{path}: has no effect: this version serves nothing by HTTP yet; `resequencer status --json` tells the same"


def _ingress(settled: SettledValues) -> Ingress:
    values = settled.values
    return Ingress(
        transport=TransportType(values[f"{INGRESS}.transport"]),
        batch_size=values[f"{INGRESS}.batch-size"],
        max_record_bytes=values[f"{INGRESS}.max-record-bytes"],
        topic=values[f"{INGRESS}.kafka.consumer.topic"],
        kafka_clients=_client_options(settled, CONSUMER_CLIENTS),
        file_directory=values[f"{INGRESS}.file.directory"],
        archive_directory=values[f"{INGRESS}.file.archive-directory"],
        archive_every_ms=values[f"{INGRESS}.file.archive-every"],
    )


def _notification(settled: SettledValues) -> Notifications:
    values = settled.values
    return Notifications(
        run_directory=values[f"{NOTIFICATION}.run-directory"],
        transport=TransportType(values[f"{NOTIFICATION}.transport"]),
        topic=values[f"{NOTIFICATION}.kafka.producer.topic"],
        kafka_clients=_client_options(settled, PRODUCER_CLIENTS),
        output_directory=values[f"{NOTIFICATION}.file.directory"],
        rotate_bytes=values[f"{NOTIFICATION}.file.rotate-at"],
        notifications_kept=values[f"{NOTIFICATION}.file.keep-notifications"],
        dead_letters_topic=values[f"{NOTIFICATION}.dead-letters.topic"],
        target_type=values[f"{NOTIFICATION}.target-type"],
        settings=values[f"{NOTIFICATION}.settings"],
    )


def _lookups(settled: SettledValues) -> Lookup:
    values = settled.values
    return Lookup(
        directory=values[f"{LOOKUPS}.directory"],
        is_required=settled.layers[f"{LOOKUPS}.directory"] != REFERENCE,
        sources=values[f"{LOOKUPS}.sources"],
        check_every_ms=values[f"{LOOKUPS}.check-every"],
        keep=values[f"{LOOKUPS}.keep"],
    )


def _archive(values: Mapping[str, Any]) -> RecordsArchive:
    return RecordsArchive(
        location=values[f"{ARCHIVE}.directory"],
        every_ms=values[f"{ARCHIVE}.every"],
        batch_records=values[f"{ARCHIVE}.batch-size"],
    )


def _resequencer(values: Mapping[str, Any]) -> Resequencers:
    storage_type = values[f"{RESEQUENCER}.storage-type"]
    return Resequencers(
        storage_type=StorageType("infinispan" if storage_type == "cache" else storage_type),
        strategy=values[f"{RESEQUENCER}.strategy"],
        custom_data_keys=values[f"{RESEQUENCER}.custom-data-keys"],
        pds_data_keys=values[f"{RESEQUENCER}.pds-data-keys"],
        processing_timeout_ms=values[f"{RESEQUENCER}.processing-timeout"],
        handling_limit_ms=values[f"{RESEQUENCER}.handling-limit"],
        max_attempts=values[f"{RESEQUENCER}.max-attempts"],
        backoff_factor=values[f"{RESEQUENCER}.backoff-factor"],
        jitter_factor=values[f"{RESEQUENCER}.jitter-factor"],
        idle_timeout_ms=values[f"{RESEQUENCER}.idle-timeout"],
        stash_timeout_ms=stash_timeout_ms(values),
        learned_timeout=find_learned_timeout(values),
        acknowledge=Acknowledge(values[f"{RESEQUENCER}.acknowledge"]),
        retention_ms=values[f"{RESEQUENCER}.retention"],
        stash_limit_envelopes_per_unit=values[f"{RESEQUENCER}.stash-limit.envelopes-per-unit"],
        stash_limit_bytes_per_unit=values[f"{RESEQUENCER}.stash-limit.bytes-per-unit"],
        stash_limit_bytes_per_worker=values[f"{RESEQUENCER}.stash-limit.bytes-per-worker"],
    )


def _storage(values: Mapping[str, Any]) -> Storages:
    return Storages(
        namespace=values[f"{STORAGE}.namespace"],
        embedded_file=values[f"{STORAGE}.embedded.file"],
        redis=_redis(values),
        infinispan=_infinispan(values),
    )


def _redis(values: Mapping[str, Any]) -> Redis:
    return Redis(
        url=values[f"{STORAGE}.redis.url"],
        username=values[f"{STORAGE}.redis.username"],
        password=values[f"{STORAGE}.redis.password"],
        timeout_ms=values[f"{STORAGE}.redis.timeout"],
        wait_replicas=values[f"{STORAGE}.redis.wait-replicas"],
        ca_file=values[f"{STORAGE}.redis.tls.ca-file"],
        certificate_file=values[f"{STORAGE}.redis.tls.certificate-file"],
        key_file=values[f"{STORAGE}.redis.tls.key-file"],
    )


def _infinispan(values: Mapping[str, Any]) -> Infinispan:
    return Infinispan(
        url=values[f"{STORAGE}.infinispan.url"],
        cache=values[f"{STORAGE}.infinispan.cache"],
        username=values[f"{STORAGE}.infinispan.username"],
        password=values[f"{STORAGE}.infinispan.password"],
        timeout_ms=values[f"{STORAGE}.infinispan.timeout"],
        ca_file=values[f"{STORAGE}.infinispan.tls.ca-file"],
    )


def _client_options(settled: SettledValues, section: str) -> ClientOptions:
    prefix = section + "."
    return tuple((path.removeprefix(prefix), raw) for path, raw in settled.client_options.items() if path.startswith(prefix))
