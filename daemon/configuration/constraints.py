"""What must hold between keys, as data: each relation is asked only if all of its keys are right by themselves."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from daemon.configuration.schema import CONSUMER_CLIENTS, INGRESS, LEARNED, NOTIFICATION, RESEQUENCER
from domain.errors import ConfigurationError
from resequencer.settings import LearnedTimeout, ResequencerSettings

Values = Mapping[str, Any]

MOST_DEADLINE_MS = 30 * 86_400_000

_INGRESS_TRANSPORT = f"{INGRESS}.transport"
_TRANSPORT = f"{NOTIFICATION}.transport"
_STORAGE_TYPE = f"{RESEQUENCER}.storage-type"
_STRATEGY = f"{RESEQUENCER}.strategy"
_PROCESSING = f"{RESEQUENCER}.processing-timeout"
_HANDLING = f"{RESEQUENCER}.handling-limit"
_ATTEMPTS = f"{RESEQUENCER}.max-attempts"
_BACKOFF = f"{RESEQUENCER}.backoff-factor"
_IDLE = f"{RESEQUENCER}.idle-timeout"
_STASH = f"{RESEQUENCER}.stash-timeout"
_AT_LEAST = f"{RESEQUENCER}.learned-timeout.at-least"
_AT_MOST = f"{RESEQUENCER}.learned-timeout.at-most"
_ACKNOWLEDGE = f"{RESEQUENCER}.acknowledge"
_RETENTION = f"{RESEQUENCER}.retention"
_ARCHIVE_EVERY = f"{INGRESS}.file.archive-every"
_ROTATE_AT = f"{NOTIFICATION}.file.rotate-at"
_KEPT = f"{NOTIFICATION}.file.keep-notifications"
RECORD_BYTES = f"{INGRESS}.max-record-bytes"
STASH_BYTES = f"{RESEQUENCER}.stash-limit.bytes-per-worker"
STASH_BYTES_PER_UNIT = f"{RESEQUENCER}.stash-limit.bytes-per-unit"
_WORKERS = f"{NOTIFICATION}.worker.count"
POLL_INTERVAL = f"{CONSUMER_CLIENTS}.max.poll.interval.ms"


class Relation(msgspec.Struct, frozen=True):
    """The first of `keys` is the one that a refusal names; `problem` says why and what to do."""

    keys: tuple[str, ...]
    holds: Callable[[Values], bool]
    problem: str


def stash_timeout_ms(values: Values) -> int | None:
    """None where it is the sum of the delays of all attempts, or learned."""
    configured = values[_STASH]
    return configured if isinstance(configured, int) else None


def find_learned_timeout(values: Values) -> LearnedTimeout | None:
    """The bounds, where the stash timeout is learned."""
    return LearnedTimeout(values[_AT_LEAST], values[_AT_MOST]) if values[_STASH] == LEARNED else None


def deadline_ms(values: Values) -> int:
    """How long a stashed envelope waits at most: `stash-timeout`, or the sum of the delays of all attempts."""
    settings = ResequencerSettings(
        processing_timeout_ms=values[_PROCESSING],
        max_attempts=values[_ATTEMPTS],
        backoff_factor=values[_BACKOFF],
        stash_timeout_ms=stash_timeout_ms(values),
        learned=find_learned_timeout(values),
    )
    return settings.longest_deadline_ms


def _has_its_keys(strategy: str, key: str) -> Relation:
    path = f"{RESEQUENCER}.{key}"
    return Relation(
        (path, _STRATEGY),
        lambda values: values[_STRATEGY] != strategy or bool(values[path]),
        f"is empty, but strategy = {strategy} waits for the data it names: give at least one",
    )


RELATIONS = (
    Relation(
        (_TRANSPORT, _INGRESS_TRANSPORT),
        lambda values: values[_TRANSPORT] == values[_INGRESS_TRANSPORT],
        f"differs from {_INGRESS_TRANSPORT}; mixed transports are not supported, set both alike",
    ),
    Relation(
        (_WORKERS, _INGRESS_TRANSPORT),
        lambda values: values[_WORKERS] == 1 or values[_INGRESS_TRANSPORT] != "file",
        "is more than 1, which needs transport = kafka: files have no consumer group to share them out",
    ),
    _has_its_keys("FULL_PAIN001_AND_CUSTOM_DATA", "custom-data-keys"),
    _has_its_keys("FULL_PAIN001_AND_PDS_DATA", "pds-data-keys"),
    Relation(
        (_IDLE, _PROCESSING),
        lambda values: values[_IDLE] >= values[_PROCESSING],
        f"is below {_PROCESSING}: a resequencer would stop while an attempt may still be under way",
    ),
    Relation(
        (_HANDLING, _PROCESSING),
        lambda values: values[_HANDLING] >= values[_PROCESSING],
        f"is below {_PROCESSING}: a worker would be ended while an attempt may still be under way; raise it",
    ),
    Relation(
        (_HANDLING, POLL_INTERVAL, _INGRESS_TRANSPORT),
        lambda values: values[_INGRESS_TRANSPORT] == "file" or values[_HANDLING] < values[POLL_INTERVAL],
        f"is not below {POLL_INTERVAL} (300000 if not set): another worker would be given what this one hangs on before it is "
        "ended; lower it, or raise that option",
    ),
    Relation(
        (_ACKNOWLEDGE, _STORAGE_TYPE),
        lambda values: values[_ACKNOWLEDGE] != "when-handled" or values[_STORAGE_TYPE] == "none",
        "is when-handled, which is for storage-type = none: a durable storage already holds what waits, use when-settled",
    ),
    Relation(
        (_ACKNOWLEDGE, _INGRESS_TRANSPORT),
        lambda values: values[_ACKNOWLEDGE] != "when-handled" or values[_INGRESS_TRANSPORT] == "kafka",
        "is when-handled, which needs transport = kafka: Kafka itself is the store then, use when-settled",
    ),
    Relation(
        (_RETENTION, _IDLE),
        lambda values: values[_RETENTION] >= values[_IDLE],
        f"is below {_IDLE}: a unit would be forgotten while its resequencer is alive",
    ),
    Relation(
        (STASH_BYTES, RECORD_BYTES),
        lambda values: values[STASH_BYTES] >= values[RECORD_BYTES],
        f"is below {RECORD_BYTES}: a single record would not fit",
    ),
    Relation(
        (STASH_BYTES_PER_UNIT, RECORD_BYTES),
        lambda values: values[STASH_BYTES_PER_UNIT] is None or values[STASH_BYTES_PER_UNIT] >= 2 * values[RECORD_BYTES],
        f"is below twice {RECORD_BYTES}: a single record would not fit, for in memory it takes about twice its bytes",
    ),
    Relation(
        (STASH_BYTES_PER_UNIT, STASH_BYTES),
        lambda values: values[STASH_BYTES_PER_UNIT] is None or values[STASH_BYTES_PER_UNIT] <= values[STASH_BYTES],
        f"is above {STASH_BYTES}: a single unit would not fit",
    ),
    Relation(
        (_ARCHIVE_EVERY, _STORAGE_TYPE),
        lambda values: values[_ARCHIVE_EVERY] is None or values[_STORAGE_TYPE] in ("none", "embedded"),
        f"is set, but {_STORAGE_TYPE} is neither none nor embedded: only these can be asked what waits, so that it stays",
    ),
    Relation(
        (_KEPT, _ROTATE_AT),
        lambda values: values[_KEPT] is None or values[_ROTATE_AT] is not None,
        f"says how many full files are kept, but {_ROTATE_AT} is null: none is ever full. Set both or neither",
    ),
    Relation(
        (_AT_LEAST, _AT_MOST),
        lambda values: values[_AT_LEAST] <= values[_AT_MOST],
        f"is more than {_AT_MOST}: nothing lies between them",
    ),
    Relation(
        (_ATTEMPTS, _PROCESSING, _BACKOFF, _STASH, _AT_LEAST, _AT_MOST),
        lambda values: deadline_ms(values) <= MOST_DEADLINE_MS,
        f"makes, with {_PROCESSING} and {_BACKOFF}, a deadline of more than 30d: lower one of them or set {_STASH}",
    ),
)


def broken_relations(values: Values) -> Iterator[ConfigurationError]:
    """The relations that do not hold; those between keys of which one has no right value are not asked.

    `values` has the consumer's `POLL_INTERVAL`, too, in milliseconds.
    """
    for relation in RELATIONS:
        if all(key in values for key in relation.keys) and not relation.holds(values):
            yield ConfigurationError(relation.keys[0], relation.problem)


def doubtful_relations(values: Values) -> tuple[str, ...]:
    """What is allowed, but may not be meant; a sentence each."""
    return (*_long_deadline(values), *_nothing_learned(values), *_nothing_kept(values))


def _long_deadline(values: Values) -> Iterator[str]:
    if deadline_ms(values) > values[_IDLE]:
        yield (
            f"{_IDLE}: is below the deadline of {deadline_ms(values) / 1_000:g} s until which a stashed envelope may wait; "
            "units in which something waits are kept alive past it"
        )


def _nothing_learned(values: Values) -> Iterator[str]:
    if values[_STASH] == LEARNED and values[_INGRESS_TRANSPORT] == "file":
        yield (
            f"{_STASH}: is learned, and {_INGRESS_TRANSPORT} is file: files do not say when a record came, so only what was "
            "learned on Kafka counts, if the lookups have any of it"
        )


def _nothing_kept(values: Values) -> Iterator[str]:
    """What storage none gives up, by who keeps the input then."""
    if values[_STORAGE_TYPE] != "none":
        return
    if values[_TRANSPORT] == "file":
        yield (
            f"{_STORAGE_TYPE}: is none: after a restart what was not handled is read again, and what left in the moment of a "
            "crash may be notified again"
        )
    elif values[_ACKNOWLEDGE] == "when-settled":
        yield (
            f"{_ACKNOWLEDGE}: is when-settled, and {_STORAGE_TYPE} is none: what waits is acknowledged and kept by nobody, so a "
            "worker that ends, or gives a partition away, loses it. With when-handled Kafka keeps it"
        )
    else:
        yield f"{_STORAGE_TYPE}: is none: after a restart what was not handled is read again; what units knew before is gone"
