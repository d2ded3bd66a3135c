"""The schema of the configuration: every key and the kind of value it takes. The defaults are those of conf/reference.conf."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from daemon.configuration.value_types import (
    Choice,
    Duration,
    FilePath,
    Kind,
    Location,
    Names,
    Number,
    SecretText,
    Size,
    Text,
    Url,
    Whole,
)

INGRESS = "ipf.processing-data.ingress"
NOTIFICATION = "payment-status-notification"
RESEQUENCER = f"{NOTIFICATION}.resequencer"
STORAGE = f"{NOTIFICATION}.storage"
LOOKUPS = f"{NOTIFICATION}.lookups"
ARCHIVE = f"{NOTIFICATION}.archive"

CONSUMER_CLIENTS = f"{INGRESS}.kafka.consumer.kafka-clients"
PRODUCER_CLIENTS = f"{NOTIFICATION}.kafka.producer.kafka-clients"
CLIENTS = (CONSUMER_CLIENTS, PRODUCER_CLIENTS)
"""Sections that take any key: their names are Kafka's."""

STRATEGIES = ("FULL_PAIN001", "FULL_PAIN001_AND_CUSTOM_DATA", "FULL_PAIN001_AND_PDS_DATA", "SEQUENCE", "STRICT_SEQUENCE")
TARGET_TYPES = ("report", "report-xml", "produced-report")
LEARNED = "learned"
"""As a stash timeout: as long as the late ones of a flow really take."""

_TRANSPORT = Choice(("kafka", "file"))
_TOPIC = Text(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", "a Kafka topic: 1 to 249 letters, digits, dots, underscores and hyphens")
_NAME = Text(r"[A-Za-z0-9._-]{1,100}", "1 to 100 letters, digits, dots, underscores and hyphens")

KEYS: Mapping[str, Kind] = {
    f"{INGRESS}.transport": _TRANSPORT,
    f"{INGRESS}.batch-size": Whole(1, 100_000, "records"),
    f"{INGRESS}.max-record-bytes": Size("1K", "64M"),
    f"{INGRESS}.kafka.consumer.topic": _TOPIC,
    f"{INGRESS}.file.directory": FilePath("<run-directory>/in"),
    f"{INGRESS}.file.archive-directory": FilePath("<run-directory>/archive"),
    f"{INGRESS}.file.archive-every": Duration("1s", "7d", "never, only when told to"),
    f"{NOTIFICATION}.run-directory": FilePath("run/<name of the configuration file>"),
    f"{NOTIFICATION}.transport": _TRANSPORT,
    f"{NOTIFICATION}.kafka.producer.topic": _TOPIC,
    f"{NOTIFICATION}.file.directory": FilePath("<run-directory>/out"),
    f"{NOTIFICATION}.file.rotate-at": Size("1M", "1024G", "never"),
    f"{NOTIFICATION}.file.keep-notifications": Whole(1, 1_000_000, "files", "all of them"),
    f"{NOTIFICATION}.dead-letters.topic": _TOPIC,
    f"{NOTIFICATION}.target-type": Choice(TARGET_TYPES, "callable"),
    f"{NOTIFICATION}.settings": FilePath(),
    f"{LOOKUPS}.directory": FilePath("<run-directory>/lookups"),
    f"{LOOKUPS}.sources": FilePath(),
    f"{LOOKUPS}.check-every": Duration("100ms", "1h"),
    f"{LOOKUPS}.keep": Whole(1, 1_000, "releases"),
    f"{ARCHIVE}.directory": Location("<run-directory>/records"),
    f"{ARCHIVE}.every": Duration("1s", "1d"),
    f"{ARCHIVE}.batch-size": Whole(1, 100_000_000, "records"),
    f"{RESEQUENCER}.storage-type": Choice(("none", "embedded", "redis", "infinispan", "cache")),
    f"{RESEQUENCER}.strategy": Choice(STRATEGIES, "Class"),
    f"{RESEQUENCER}.custom-data-keys": Names(),
    f"{RESEQUENCER}.pds-data-keys": Names(),
    f"{RESEQUENCER}.processing-timeout": Duration("1ms", "1h"),
    f"{RESEQUENCER}.handling-limit": Duration("100ms", "1h"),
    f"{RESEQUENCER}.max-attempts": Whole(1, 100, "attempts"),
    f"{RESEQUENCER}.backoff-factor": Number(1, 100),
    f"{RESEQUENCER}.jitter-factor": Number(0, 1),
    f"{RESEQUENCER}.idle-timeout": Duration("1ms", "1d"),
    f"{RESEQUENCER}.stash-timeout": Duration("1ms", "30d", "the sum of the attempts' delays", LEARNED),
    f"{RESEQUENCER}.learned-timeout.at-least": Duration("1ms", "30d"),
    f"{RESEQUENCER}.learned-timeout.at-most": Duration("1ms", "30d"),
    f"{RESEQUENCER}.acknowledge": Choice(("when-settled", "when-handled")),
    f"{RESEQUENCER}.retention": Duration("1s", "365d"),
    f"{RESEQUENCER}.stash-limit.envelopes-per-unit": Whole(1, 1_000_000, "envelopes"),
    f"{RESEQUENCER}.stash-limit.bytes-per-unit": Size("2K", "1024G", "an eighth of bytes-per-worker"),
    f"{RESEQUENCER}.stash-limit.bytes-per-worker": Size("1M", "1024G"),
    f"{STORAGE}.namespace": _NAME,
    f"{STORAGE}.embedded.file": FilePath("<run-directory>/state.db"),
    f"{STORAGE}.redis.url": Url(("redis", "rediss", "unix")),
    f"{STORAGE}.redis.username": Text(r"[^\x00-\x1f]{0,256}", "a text"),
    f"{STORAGE}.redis.password": SecretText(),
    f"{STORAGE}.redis.timeout": Duration("100ms", "10s"),
    f"{STORAGE}.redis.wait-replicas": Whole(0, 10, "replicas"),
    f"{STORAGE}.redis.tls.ca-file": FilePath("those that the system trusts"),
    f"{STORAGE}.redis.tls.certificate-file": FilePath("none"),
    f"{STORAGE}.redis.tls.key-file": FilePath("none"),
    f"{STORAGE}.infinispan.url": Url(("http", "https")),
    f"{STORAGE}.infinispan.cache": _NAME,
    f"{STORAGE}.infinispan.username": Text(r"[^\x00-\x1f:]{0,256}", "a text without a colon"),
    f"{STORAGE}.infinispan.password": SecretText(),
    f"{STORAGE}.infinispan.timeout": Duration("100ms", "10s"),
    f"{STORAGE}.infinispan.tls.ca-file": FilePath("those that the system trusts"),
    f"{NOTIFICATION}.worker.count": Whole(1, 256, "workers"),
    f"{NOTIFICATION}.http.host": Text(r"[A-Za-z0-9.:_-]{1,255}", "a host name or an address"),
    f"{NOTIFICATION}.http.port": Whole(0, 65_535),
    f"{NOTIFICATION}.logging.format": Choice(("text", "json")),
    f"{NOTIFICATION}.logging.level": Choice(("debug", "info", "warning", "error")),
}


def is_section(path: str) -> bool:
    """Whether keys lie under it."""
    return path in CLIENTS or any(key.startswith(path + ".") for key in (*KEYS, *CLIENTS))


def is_client_option(path: str) -> bool:
    return path.startswith(tuple(f"{each}." for each in CLIENTS))


def find_nearest(path: str, known: Collection[str] = tuple(KEYS)) -> str | None:
    """The known key (or option) that was probably meant: one of the same name elsewhere, else one that is spelt alike."""
    last = path.rpartition(".")[2]
    namesakes = [key for key in known if key.rpartition(".")[2] == last]
    return next(iter(get_close_matches(path, namesakes, 1, 0.0) or get_close_matches(path, known, 1, 0.6)), None)
