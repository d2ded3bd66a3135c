"""The rules that hold between keys. A constraint is checked only if each of its keys has a valid value."""

import ipaddress
from collections.abc import Iterator

from notification_service.aggregation.settings import AggregationSettings, AggregationWorkerSettings
from notification_service.configuration.event_constraints import EVENT_CONSTRAINTS, doubtful_events
from notification_service.configuration.kafka_client_options import CONSUMER_CLIENTS
from notification_service.configuration.region_constraints import (
    BRIDGE_CONSTRAINTS,
    REGION_CONSTRAINTS,
    doubtful_bridges,
    doubtful_regions,
)
from notification_service.configuration.schema import Constraint, Values, path_of
from notification_service.configuration.sections import Ingress, Notifications, Orders, Resequencers
from notification_service.configuration.storages import ARCHIVABLE, STORAGE_TYPE, kind_named
from notification_service.console.access.settings import EDIT, INITIAL_STATE, HttpSettings, HttpTls, TrustedProxy
from notification_service.delivery.settings import DeliverySettings, WorkerSettings
from resequencer.errors import ConfigurationError
from resequencer.settings import LEARNED, LearnedTimeout, ResequencerSettings

MAX_DEADLINE_MS = 30 * 86_400_000

_INGRESS_TRANSPORT = path_of(Ingress, "transport")
_TRANSPORT = path_of(Notifications, "transport")
_STRATEGY = path_of(Resequencers, "strategy")
_PROCESSING = path_of(Resequencers, "processing_timeout_ms")
_HANDLING = path_of(Resequencers, "handling_limit_ms")
_THREADS = path_of(Resequencers, "handling_threads")
_CONCURRENCY = path_of(Resequencers, "handling_concurrency")
_ATTEMPTS = path_of(Resequencers, "max_attempts")
_BACKOFF = path_of(Resequencers, "backoff_factor")
_IDLE = path_of(Resequencers, "idle_timeout_ms")
_STASH = path_of(Resequencers, "stash_timeout_ms")
_WINDOW = path_of(Resequencers, "reorder_window_ms")
_AT_LEAST = path_of(LearnedTimeout, "at_least_ms")
_AT_MOST = path_of(LearnedTimeout, "at_most_ms")
_ACKNOWLEDGE = path_of(Resequencers, "acknowledge")
_RETENTION = path_of(Resequencers, "retention_ms")
_ARCHIVE_EVERY = path_of(Ingress, "archive_every_ms")
_ROTATE_AT = path_of(Notifications, "rotate_bytes")
_KEPT = path_of(Notifications, "notifications_kept")
_RECORD_BYTES = path_of(Ingress, "max_record_bytes")
_STASH_BYTES = path_of(Resequencers, "stash_limit_bytes_per_worker")
_STASH_BYTES_PER_UNIT = path_of(Resequencers, "stash_bytes")
_AUTH = path_of(HttpSettings, "auth")
_APPROVAL = path_of(HttpSettings, "approval")
_HOST = path_of(HttpSettings, "host")
_PROXIES = path_of(TrustedProxy, "addresses")
_CERTIFICATE = path_of(HttpTls, "certificate_file")
_TLS_KEY = path_of(HttpTls, "key_file")
_HAS_ORDERS = path_of(Orders, "is_enabled")
_ORDERS = path_of(Orders, "topic")
_ORDER_OUTCOMES = path_of(Orders, "outcomes_topic")
_HAS_FACTS = path_of(AggregationSettings, "is_enabled")
_FACTS = path_of(AggregationSettings, "facts_topic")
_FACTS_DIRECTORY = path_of(AggregationSettings, "facts_directory")
_GROUP_TOPICS = {
    path_of(AggregationSettings, "values_topic"): "the counts of groups",
    path_of(AggregationSettings, "reports_topic"): "the reports on groups",
    path_of(AggregationSettings, "dead_letters_topic"): "commands of groups that cannot be applied",
}
_AGGREGATION_WORKERS = path_of(AggregationWorkerSettings, "count")
_DIRECTORIES = (
    path_of(Ingress, "file_directory"),
    path_of(Ingress, "archive_directory"),
    path_of(Notifications, "output_directory"),
    path_of(Orders, "directory"),
)
_EVENTS = path_of(DeliverySettings, "events_topic")
_TOPICS = _TOPIC_IN, _TOPIC_OUT, _DEAD_LETTERS = (
    path_of(Ingress, "topic"),
    path_of(Notifications, "topic"),
    path_of(Notifications, "dead_letters_topic"),
)
_IS_READ = "the topic that the service reads"
_CHUNK_POLL, _MAX_POLL = path_of(WorkerSettings, "poll_ms"), path_of(WorkerSettings, "max_poll_ms")
POLL_INTERVAL = f"{CONSUMER_CLIENTS}.max.poll.interval.ms"


def deadline_ms(values: Values) -> int:
    """Return how long a stashed envelope waits at most: `stash-timeout`, or the sum of all delays; with WINDOW its window."""
    if values[_STRATEGY] == "WINDOW":
        return int(values[_WINDOW])
    settings = ResequencerSettings(
        processing_timeout_ms=values[_PROCESSING],
        max_attempts=values[_ATTEMPTS],
        backoff_factor=values[_BACKOFF],
        stash_timeout_ms=values[_STASH],
        learned_timeout=LearnedTimeout(values[_AT_LEAST], values[_AT_MOST]),
    )
    return settings.longest_deadline_ms


def _has_its_keys(strategy: str, path: str) -> Constraint:
    return Constraint(
        (path, _STRATEGY),
        lambda values: values[_STRATEGY] != strategy or bool(values[path]),
        f"is empty, but strategy = {strategy} waits for the data that this key names: give at least one name",
    )


def _is_a_topic_of_its_own(path: str, what: str, *others: str, switch: str | None = None) -> Constraint:
    """Without a `switch` that is false the topic is in use."""
    return Constraint(
        (path, *others, *(() if switch is None else (switch,))),
        lambda values: bool(switch and not values[switch]) or values[path] not in {values[each] for each in others},
        f"is the topic of another key: {what} need a topic of their own; name another one",
    )


def _is_not_also(path: str, other: str, why: str) -> Constraint:
    """Return that two topics are two. Where one side is not Kafka, they are only names."""
    return Constraint(
        (path, other, _INGRESS_TRANSPORT, _TRANSPORT),
        lambda values: values[path] != values[other] or not values[_INGRESS_TRANSPORT] == values[_TRANSPORT] == "kafka",
        f"is also {other}, {why}; name another one",
    )


CONSTRAINTS = (
    *EVENT_CONSTRAINTS,
    _has_its_keys("FULL_PAIN001_AND_CUSTOM_DATA", path_of(Resequencers, "custom_data_keys")),
    _has_its_keys("FULL_PAIN001_AND_PDS_DATA", path_of(Resequencers, "pds_data_keys")),
    Constraint(
        (_IDLE, _PROCESSING),
        lambda values: values[_IDLE] >= values[_PROCESSING],
        f"is below {_PROCESSING}: a resequencer would stop while an attempt may still run",
    ),
    Constraint(
        (_HANDLING, _PROCESSING),
        lambda values: values[_HANDLING] >= values[_PROCESSING],
        f"is below {_PROCESSING}: a worker would be ended while an attempt may still run; raise it",
    ),
    Constraint(
        (_HANDLING, POLL_INTERVAL, _INGRESS_TRANSPORT),
        lambda values: values[_INGRESS_TRANSPORT] != "kafka" or values[_HANDLING] < values[POLL_INTERVAL],
        f"is not below {POLL_INTERVAL} (300000 if not set): Kafka would give the partition to another worker before the "
        "hanging one is ended; lower this key, or raise that option",
    ),
    Constraint(
        (_ACKNOWLEDGE, STORAGE_TYPE),
        lambda values: values[_ACKNOWLEDGE] != "when-handled" or not kind_named(values[STORAGE_TYPE]).is_durable,
        "is when-handled, which needs storage-type = none: a durable storage already keeps what waits; use when-settled",
    ),
    Constraint(
        (_ACKNOWLEDGE, _INGRESS_TRANSPORT),
        lambda values: values[_ACKNOWLEDGE] != "when-handled" or values[_INGRESS_TRANSPORT] == "kafka",
        "is when-handled, which needs transport = kafka, because Kafka itself is the store then; use when-settled",
    ),
    Constraint(
        (_RETENTION, _IDLE),
        lambda values: values[_RETENTION] >= values[_IDLE],
        f"is below {_IDLE}: a unit would be forgotten while its resequencer is still active",
    ),
    Constraint(
        (_STASH_BYTES, _RECORD_BYTES),
        lambda values: values[_STASH_BYTES] >= values[_RECORD_BYTES],
        f"is below {_RECORD_BYTES}: a single record would not fit",
    ),
    Constraint(
        (_STASH_BYTES_PER_UNIT, _RECORD_BYTES),
        lambda values: values[_STASH_BYTES_PER_UNIT] is None or values[_STASH_BYTES_PER_UNIT] >= 2 * values[_RECORD_BYTES],
        f"is below twice {_RECORD_BYTES}: a single record would not fit, for in memory it takes about twice its bytes",
    ),
    Constraint(
        (_STASH_BYTES_PER_UNIT, _STASH_BYTES),
        lambda values: values[_STASH_BYTES_PER_UNIT] is None or values[_STASH_BYTES_PER_UNIT] <= values[_STASH_BYTES],
        f"is above {_STASH_BYTES}: a single unit would not fit",
    ),
    Constraint(
        (_ARCHIVE_EVERY, STORAGE_TYPE),
        lambda values: values[_ARCHIVE_EVERY] is None or kind_named(values[STORAGE_TYPE]).can_archive,
        f"is set, but {STORAGE_TYPE} is neither {' nor '.join(ARCHIVABLE)}: only these can tell which input still waits "
        "and must stay",
    ),
    Constraint(
        (_KEPT, _ROTATE_AT),
        lambda values: values[_KEPT] is None or values[_ROTATE_AT] is not None,
        f"is the number of full files to keep, but {_ROTATE_AT} is null, so no file is ever full. Set both keys or neither",
    ),
    Constraint(
        (_AT_LEAST, _AT_MOST),
        lambda values: values[_AT_LEAST] <= values[_AT_MOST],
        f"is more than {_AT_MOST}: no value lies between them",
    ),
    Constraint(
        (_AUTH, _HOST),
        lambda values: values[_AUTH] != "none" or _is_loopback(values[_HOST]),
        f"is none, which needs a loopback address in {_HOST}, such as 127.0.0.1: set basic, proxy or bearer",
    ),
    Constraint(
        (_AUTH, _PROXIES),
        lambda values: values[_AUTH] != "proxy" or bool(values[_PROXIES]),
        f"is proxy, and {_PROXIES} is empty: list the addresses of the proxies that log people in",
    ),
    _is_not_also(_TOPIC_OUT, _TOPIC_IN, _IS_READ),
    _is_not_also(_DEAD_LETTERS, _TOPIC_IN, _IS_READ),
    _is_not_also(_DEAD_LETTERS, _TOPIC_OUT, "so that readers could not tell dead letters from notifications"),
    _is_a_topic_of_its_own(_ORDERS, "orders", *_TOPICS, _ORDER_OUTCOMES, switch=_HAS_ORDERS),
    _is_a_topic_of_its_own(_ORDER_OUTCOMES, "the outcomes of orders", *_TOPICS, switch=_HAS_ORDERS),
    _is_a_topic_of_its_own(_FACTS, "facts", *_TOPICS, _ORDERS, _ORDER_OUTCOMES, _EVENTS, switch=_HAS_FACTS),
    Constraint(
        (_FACTS_DIRECTORY, _HAS_FACTS, *_DIRECTORIES),
        lambda values: (
            not values[_HAS_FACTS]
            or values[_FACTS_DIRECTORY] is None
            or values[_FACTS_DIRECTORY] not in {values[each] for each in _DIRECTORIES}
        ),
        "is the directory of another key: facts need a directory of their own; name another one",
    ),
    *(
        _is_a_topic_of_its_own(
            each, what, *_TOPICS, _FACTS, *(other for other in _GROUP_TOPICS if other != each), switch=_HAS_FACTS
        )
        for each, what in _GROUP_TOPICS.items()
    ),
    Constraint(
        (_AGGREGATION_WORKERS, _HAS_FACTS, _TRANSPORT),
        lambda values: not values[_HAS_FACTS] or values[_TRANSPORT] != "file" or values[_AGGREGATION_WORKERS] <= 1,
        f"is more than 1, but {_TRANSPORT} is file: one worker reads the files. Set it to 1, or use Kafka",
    ),
    _is_a_topic_of_its_own(_EVENTS, "the events of delivery", *_TOPICS, _ORDERS, _ORDER_OUTCOMES),
    Constraint(
        (_APPROVAL, _AUTH),
        lambda values: not values[_APPROVAL] or values[_AUTH] != "none",
        f"names what another person approves, which needs to know the persons: set {_AUTH} to basic, proxy or bearer",
    ),
    Constraint(
        (_APPROVAL, _HAS_ORDERS),
        lambda values: not set(values[_APPROVAL]) - {EDIT, INITIAL_STATE} or values[_HAS_ORDERS],
        f"names orders, and {_HAS_ORDERS} is false: set it to true, or leave the orders out",
    ),
    Constraint(
        (_CHUNK_POLL, _MAX_POLL),
        lambda values: values[_CHUNK_POLL] <= values[_MAX_POLL],
        f"is more than {_MAX_POLL}: lower it, or raise the other",
    ),
    Constraint(
        (_CERTIFICATE, _TLS_KEY),
        lambda values: (values[_CERTIFICATE] is None) == (values[_TLS_KEY] is None),
        f"and {_TLS_KEY} belong together: set both, or neither",
    ),
    Constraint(
        (_ATTEMPTS, _PROCESSING, _BACKOFF, _STASH, _AT_LEAST, _AT_MOST, _STRATEGY, _WINDOW),
        lambda values: deadline_ms(values) <= MAX_DEADLINE_MS,
        f"makes, with {_PROCESSING} and {_BACKOFF}, a deadline of more than 30d: lower one of them or set {_STASH}",
    ),
    *REGION_CONSTRAINTS,
    *BRIDGE_CONSTRAINTS,
)


def broken_constraints(values: Values) -> Iterator[ConfigurationError]:
    """Return the constraints that do not hold. A constraint is skipped if one of its keys has no valid value.

    `values` has the consumer's `POLL_INTERVAL`, too, in milliseconds.
    """
    for constraint in CONSTRAINTS:
        if all(key in values for key in constraint.keys) and not constraint.holds(values):
            yield ConfigurationError(constraint.keys[0], constraint.problem)


def doubtful_constraints(values: Values) -> tuple[str, ...]:
    """Return warnings, a sentence each: settings that are allowed but may not be intended."""
    return (
        *_nothing_learned(values),
        *doubtful_events(values),
        *_nothing_kept(values),
        *_idle_threads(values),
        *doubtful_regions(values),
        *doubtful_bridges(values),
        *_passwords_in_clear(values),
    )


def _nothing_learned(values: Values) -> Iterator[str]:
    if values[_STASH] == LEARNED and values[_INGRESS_TRANSPORT] == "file":
        yield (
            f"{_STASH}: is learned, and {_INGRESS_TRANSPORT} is file: files have no arrival times, so only deadlines that "
            "were learned on Kafka count, if the lookups have any"
        )


def _nothing_kept(values: Values) -> Iterator[str]:
    """Return what storage none does not guarantee, for the transport in use."""
    if kind_named(values[STORAGE_TYPE]).is_durable:
        return
    if values[_TRANSPORT] == "file":
        yield (
            f"{STORAGE_TYPE}: is none: after a restart unhandled records are read again, and a notification that was being sent "
            "at a crash may be sent again"
        )
    elif values[_ACKNOWLEDGE] == "when-settled":
        yield (
            f"{_ACKNOWLEDGE}: is when-settled, and {STORAGE_TYPE} is none: stashed envelopes are acknowledged but stored "
            "nowhere: a worker that ends or loses the partition loses them. Set when-handled, so that Kafka keeps them"
        )
    else:
        yield f"{STORAGE_TYPE}: is none: after a restart unhandled records are read again; earlier state of units is lost"


def _idle_threads(values: Values) -> Iterator[str]:
    if values[_THREADS] > values[_CONCURRENCY]:
        yield f"{_THREADS}: is above {_CONCURRENCY}, which is {values[_CONCURRENCY]}: the other threads never have a call"


def _passwords_in_clear(values: Values) -> Iterator[str]:
    is_open = values[_CERTIFICATE] is None and not _is_loopback(values[_HOST])
    if is_open and values[_AUTH] in ("basic", "bearer"):
        yield (
            f"{_AUTH}: is {values[_AUTH]}, and {_CERTIFICATE} is null: passwords and tokens pass the network readable, "
            "unless a proxy in front of the console speaks TLS"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
