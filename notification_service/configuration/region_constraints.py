"""What a region or the bridge cannot promise, and is refused, and what they promise less: docs/regions.md, docs/bridge.md.

A region has a source and sinks that are not one transport.
"""

from collections import Counter
from collections.abc import Iterator

from notification_service.aggregation.settings import AggregationSettings
from notification_service.bridge.settings import BridgeSettings
from notification_service.configuration.schema import Constraint, Values, path_of
from notification_service.configuration.sections import (
    Ingress,
    Notifications,
    Orders,
    RegionSettings,
    Sections,
    Trigger,
)
from notification_service.configuration.storages import DURABLE, STORAGE_TYPE, kind_named
from notification_service.connectors.jms.settings import JmsSinkSettings, JmsSourceSettings, XmsSinkSettings, XmsSourceSettings
from notification_service.connectors.mqtt.settings import MqttSinkSettings, MqttSourceSettings

_SOURCE = path_of(Ingress, "transport")
_SINK = path_of(Notifications, "transport")
_FURTHER = path_of(Notifications, "further_transports")
_WORKERS = path_of(Sections, "worker_count")
_TRIGGER, _TRIGGER_COUNT = path_of(RegionSettings, "trigger"), path_of(RegionSettings, "trigger_count")
_FIXED = path_of(Ingress, "kafka_partitions")
_REGION = (_SOURCE, _SINK, _FURTHER, _FIXED)
_PARTITIONS = path_of(JmsSourceSettings, "partitions")
_IN_URL, _OUT_URL = path_of(JmsSourceSettings, "url"), path_of(JmsSinkSettings, "url")
_QUEUES = tuple(path_of(JmsSinkSettings, each) for each in ("notifications", "dead_letters", "markers"))
_MQTT_TOPICS = path_of(MqttSinkSettings, "notifications"), path_of(MqttSinkSettings, "dead_letters")
_QOS = path_of(MqttSinkSettings, "qos")
_XMS_URL = path_of(XmsSinkSettings, "url")
_XMS_QUEUES = path_of(XmsSinkSettings, "notifications"), path_of(XmsSinkSettings, "dead_letters")
_SINK_QUEUES = (("jms", _OUT_URL, _QUEUES), ("xms", _XMS_URL, _XMS_QUEUES))
FORGOTTEN = ("jms", "mqtt", "xms")
"""Sinks whose output cannot be read again."""

_MARKERS = path_of(Notifications, "markers_topic")
_TOPICS = (
    path_of(Ingress, "topic"),
    path_of(Notifications, "topic"),
    path_of(Notifications, "dead_letters_topic"),
    path_of(Orders, "topic"),
    path_of(Orders, "outcomes_topic"),
    path_of(AggregationSettings, "facts_topic"),
)
_HAS_ORDERS = path_of(Orders, "is_enabled")
_HAS_FACTS = path_of(AggregationSettings, "is_enabled")
_ARCHIVE_EVERY = path_of(Ingress, "archive_every_ms")


def is_region(values: Values) -> bool:
    """Whether source and sinks are not one transport."""
    return values[_SOURCE] != values[_SINK] or bool(values[_FURTHER]) or values[_SOURCE] == "jms" or bool(values[_FIXED])


def _sinks(values: Values) -> tuple[str, ...]:
    return (values[_SINK], *values[_FURTHER])


def _has_overlap(values: Values) -> bool:
    """Whether two partitions certainly have the same messages: the same selector, or one of them has the whole queue."""
    parts = Counter((each.queue, each.selector) for each in values[_PARTITIONS])
    whole = {queue for queue, selector in parts if not selector}
    return any(count > 1 for count in parts.values()) or any(selector and queue in whole for queue, selector in parts)


def _reads_its_output(values: Values) -> bool:
    if values[_SOURCE] != "jms":
        return False
    sinks, read = _sinks(values), {each.queue for each in values[_PARTITIONS]}
    return any(
        kind in sinks and values[url] == values[_IN_URL] and bool(read & {values[each] for each in queues})
        for kind, url, queues in _SINK_QUEUES
    )


def _has_one_queue_twice(values: Values) -> bool:
    """Whether jms and xms are both sinks, and write to one queue."""
    is_one_broker = {"jms", "xms"} <= set(_sinks(values)) and values[_OUT_URL] == values[_XMS_URL]
    return is_one_broker and bool({values[each] for each in _QUEUES} & {values[each] for each in _XMS_QUEUES})


REGION_CONSTRAINTS = (
    Constraint(
        (_FURTHER, _SINK),
        lambda values: values[_SINK] not in values[_FURTHER],
        f"names the kind that {_SINK} has already: each notification would leave twice in one place; name each kind once",
    ),
    Constraint(
        (STORAGE_TYPE, *_REGION),
        lambda values: kind_named(values[STORAGE_TYPE]).is_durable or not is_region(values),
        f"is none, which needs {_SOURCE} and {_SINK} to be the same of kafka and file, no further sink, and {_FIXED} to be "
        "empty: in all other cases, what has left through one and not through the other is known from the storage alone; choose "
        f"{', '.join(DURABLE[:-1])} or {DURABLE[-1]}",
    ),
    Constraint(
        (_TRIGGER, _TRIGGER_COUNT, _SOURCE),
        lambda values: (
            values[_TRIGGER] != Trigger.OPERATOR_DRIVEN or values[_SOURCE] != "jms" or values[_TRIGGER_COUNT] is not None
        ),
        f"is operator-driven, and {_SOURCE} is jms: the source itself ends an interval then, after trigger-count messages, and "
        f"{_TRIGGER_COUNT} is null; give a number, or set periodic",
    ),
    Constraint(
        (_WORKERS, *_REGION),
        lambda values: values[_WORKERS] == 1 or "file" not in (values[_SOURCE], *_sinks(values)),
        "is more than 1, but a source or a sink is file: one process writes or reads the files. Set it to 1, or use kafka or jms",
    ),
    Constraint(
        (_PARTITIONS, _SOURCE),
        lambda values: bool(values[_PARTITIONS]) or values[_SOURCE] != "jms",
        f'is empty, and {_SOURCE} is jms: name the queues, such as [{{ queue = "EVENTS", selector = "part = 0" }}]',
    ),
    Constraint(
        (_PARTITIONS, _SOURCE),
        lambda values: values[_SOURCE] != "jms" or not _has_overlap(values),
        "has two partitions that share messages: each message would come to one of them, and the order of a unit would be lost. "
        "Give the partitions of a queue different selectors",
    ),
    Constraint(
        (_PARTITIONS, _SOURCE),
        lambda values: values[_SOURCE] != "jms" or not any(each.selector and each.is_exclusive for each in values[_PARTITIONS]),
        "has a partition with a selector and exclusive = true: the broker serves one consumer of an exclusive queue, so the "
        "other partitions of the queue would never get a message. Leave one of them out",
    ),
    Constraint(
        (_PARTITIONS, _IN_URL, _OUT_URL, _XMS_URL, *_QUEUES, *_XMS_QUEUES, *_REGION),
        lambda values: not _reads_its_output(values),
        "names a queue to which the service writes on the same broker: it would read its own output; name another queue",
    ),
    Constraint(
        (*reversed(_QUEUES), _SINK, _FURTHER),
        lambda values: "jms" not in _sinks(values) or len({values[queue] for queue in _QUEUES}) == len(_QUEUES),
        f"and {_QUEUES[1]} and {_QUEUES[0]} are not three queues: each needs a queue of its own; name others",
    ),
    Constraint(
        (*reversed(_MQTT_TOPICS), _SINK, _FURTHER),
        lambda values: "mqtt" not in _sinks(values) or values[_MQTT_TOPICS[0]] != values[_MQTT_TOPICS[1]],
        f"is also {_MQTT_TOPICS[0]}: a subscriber could not tell dead letters from notifications; name another topic",
    ),
    Constraint(
        (*reversed(_XMS_QUEUES), _SINK, _FURTHER),
        lambda values: "xms" not in _sinks(values) or values[_XMS_QUEUES[0]] != values[_XMS_QUEUES[1]],
        f"is also {_XMS_QUEUES[0]}: each needs a queue of its own; name another one",
    ),
    Constraint(
        (*_XMS_QUEUES, _XMS_URL, _OUT_URL, *_QUEUES, _SINK, _FURTHER),
        lambda values: not _has_one_queue_twice(values),
        "or the other queue of xms is a queue of the sink jms on the same broker: each notification would be in it twice; name "
        "other queues, or leave one of the sinks out",
    ),
    Constraint(
        (_MARKERS, *_TOPICS, *_REGION),
        lambda values: (
            "kafka" not in _sinks(values) or not is_region(values) or values[_MARKERS] not in {values[each] for each in _TOPICS}
        ),
        "is the topic of another key: markers need a compacted topic of their own; name another one",
    ),
    Constraint(
        (_FIXED, _SOURCE),
        lambda values: not values[_FIXED] or values[_SOURCE] == "kafka",
        f"is set, which needs {_SOURCE} = kafka. Empty it",
    ),
    Constraint(
        (_HAS_ORDERS, _SOURCE, _SINK),
        lambda values: not values[_HAS_ORDERS] or values[_SOURCE] == values[_SINK] != "jms",
        f"is true, which needs {_SOURCE} and {_SINK} to be both kafka or both file: an order belongs to a partition of the "
        "source, and is read again until its outcome, which leaves through the first sink, is found beside it. Set it to false, "
        f"or change {_SINK}",
    ),
    Constraint(
        (_HAS_FACTS, _SINK),
        lambda values: not values[_HAS_FACTS] or values[_SINK] not in FORGOTTEN,
        f"is true, and {_SINK} is jms, mqtt or xms: facts are read again from a topic or a file, which a broker of messages does "
        f"not allow; set {_SINK} to kafka or file, with the other in {_FURTHER}, or set it to false",
    ),
    Constraint(
        (_ARCHIVE_EVERY, *_REGION),
        lambda values: values[_ARCHIVE_EVERY] is None or (values[_SOURCE] == "file" and not is_region(values)),
        f"is set, which needs {_SOURCE} = file, {_SINK} = file and no further sink: only the files tell what has "
        "left. Set it to null",
    ),
)


def doubtful_regions(values: Values) -> Iterator[str]:
    """Return what a region promises less than others, and what may not be meant."""
    if len(values[_FIXED]) and values[_WORKERS] > len(values[_FIXED]):
        yield f"{_WORKERS}: is more than the {len(values[_FIXED])} partitions of {_FIXED}: the others have no work"
    yield from _at_least_once(values)
    if not is_region(values) and (values[_TRIGGER] != Trigger.PERIODIC or values[_TRIGGER_COUNT] is not None):
        yield (
            f"{_TRIGGER}, {_TRIGGER_COUNT}: have no effect from kafka to kafka and from file to file, where an interval takes "
            "batch-size records; set back to periodic and null"
        )
    if values[_SOURCE] != "jms":
        return
    yield (
        f"{_SOURCE}: is jms: a message that was acknowledged cannot be read again, so a storage that has forgotten cannot be "
        "healed from the queue; keep the storage as safe as the broker (docs/regions.md)"
    )
    if values[_WORKERS] > len(values[_PARTITIONS]):
        yield f"{_WORKERS}: is more than the {len(values[_PARTITIONS])} partitions of {_PARTITIONS}: the others have no work"


def _at_least_once(values: Values) -> Iterator[str]:
    """Return what sinks that keep no marker promise less than the others."""
    for kind in _sinks(values):
        if kind == "mqtt" and values[_QOS] == 0:
            yield (
                f"{_QOS}: is 0, which promises nothing: a message that the broker does not get is lost, and nothing tells of it. "
                "Set 1 or 2"
            )
        elif kind in ("mqtt", "xms"):
            yield (
                f"{_SINK}: names {kind}, which gets each message at least once: after a crash, a lost connection or a reset some "
                "come again, with the same notification-id (docs/regions.md)"
            )


_ENABLED, _START = path_of(BridgeSettings, "is_enabled"), path_of(BridgeSettings, "start")
_BRIDGE_SOURCE = path_of(BridgeSettings, "source")
_BRIDGE_QOS, _FILTERS, _MQTT_URL = (path_of(MqttSourceSettings, each) for each in ("qos", "topics", "url"))
_BRIDGE_QUEUE, _BRIDGE_XMS_URL = path_of(XmsSourceSettings, "queue"), path_of(XmsSourceSettings, "url")
_MQTT_OUT = path_of(MqttSinkSettings, "url")


def _reads_a_queue_of_a_sink(values: Values) -> bool:
    return values[_BRIDGE_SOURCE] == "xms" and any(
        kind in _sinks(values)
        and values[url] == values[_BRIDGE_XMS_URL]
        and values[_BRIDGE_QUEUE] in {values[each] for each in queues}
        for kind, url, queues in _SINK_QUEUES
    )


def _reads_a_topic_of_a_sink(values: Values) -> bool:
    is_one_broker = values[_BRIDGE_SOURCE] == "mqtt" and "mqtt" in _sinks(values) and values[_MQTT_OUT] == values[_MQTT_URL]
    return is_one_broker and any(_matches(each, values[topic]) for each in values[_FILTERS] for topic in _MQTT_TOPICS)


def _matches(topic_filter: str, topic: str) -> bool:
    """Return whether a filter of MQTT takes a topic. What ends in # also takes the topic above."""
    levels, named = topic_filter.split("/"), topic.split("/")
    if levels[-1] == "#":
        levels = levels[:-1]
        named = named[: len(levels)]
    return len(levels) == len(named) and all(level in ("+", name) for level, name in zip(levels, named, strict=True))


BRIDGE_CONSTRAINTS = (
    Constraint(
        (_START, _ENABLED, _SOURCE),
        lambda values: not values[_ENABLED] or values[_START] == values[_SOURCE],
        f"is not {_SOURCE}: what the bridge appends would not be read; set both to kafka, or both to file",
    ),
    Constraint(
        (_BRIDGE_QUEUE, _ENABLED, _BRIDGE_SOURCE, _BRIDGE_XMS_URL, _OUT_URL, _XMS_URL, *_QUEUES, *_XMS_QUEUES, _SINK, _FURTHER),
        lambda values: not values[_ENABLED] or not _reads_a_queue_of_a_sink(values),
        "is a queue to which the service writes on the same broker: it would read its own output; name another queue",
    ),
    Constraint(
        (_FILTERS, _ENABLED, _BRIDGE_SOURCE, _MQTT_URL, _MQTT_OUT, *_MQTT_TOPICS, _SINK, _FURTHER),
        lambda values: not values[_ENABLED] or not _reads_a_topic_of_a_sink(values),
        f"takes {' or '.join(_MQTT_TOPICS)} on the same broker: the service would read its own output; name other topics",
    ),
)


def doubtful_bridges(values: Values) -> Iterator[str]:
    """Return what the bridge promises less."""
    if not values[_ENABLED] or values[_BRIDGE_SOURCE] != "mqtt":
        return
    if values[_BRIDGE_QOS] == 0:
        yield f"{_BRIDGE_QOS}: is 0: the broker does not wait for an acknowledgement, so messages may be lost. Set it to 1"
    if values[_BRIDGE_QOS] == 2:
        yield (
            f"{_BRIDGE_QOS}: is 2: the broker gives a message up once the bridge has it in memory, so a crash of the bridge may "
            "lose some. Set it to 1: nothing is lost then, and doubled envelopes are dropped"
        )
