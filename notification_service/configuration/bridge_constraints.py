"""What the bridge cannot do, and is refused, and what it promises less: docs/bridge.md."""

from collections.abc import Iterator

from notification_service.bridge.settings import BridgeMqtt, BridgeSettings, BridgeXms
from notification_service.configuration.schema import Constraint, Values, path_of
from notification_service.configuration.sections import Ingress, JmsOutput, MqttOutput, Notifications, XmsOutput

_ENABLED = path_of(BridgeSettings, "is_enabled")
_SOURCE, _START = path_of(BridgeSettings, "source"), path_of(BridgeSettings, "start")
_INGRESS = path_of(Ingress, "transport")
_SINKS = path_of(Notifications, "transport"), path_of(Notifications, "further_transports")
_QOS, _FILTERS, _MQTT_URL = path_of(BridgeMqtt, "qos"), path_of(BridgeMqtt, "topics"), path_of(BridgeMqtt, "url")
_QUEUE, _XMS_URL = path_of(BridgeXms, "queue"), path_of(BridgeXms, "url")
_JMS_OUT, _XMS_OUT, _MQTT_OUT = path_of(JmsOutput, "url"), path_of(XmsOutput, "url"), path_of(MqttOutput, "url")
_QUEUES = {
    ("jms", _JMS_OUT): tuple(path_of(JmsOutput, f"{each}_queue") for each in ("notifications", "dead_letters", "markers")),
    ("xms", _XMS_OUT): tuple(path_of(XmsOutput, f"{each}_queue") for each in ("notifications", "dead_letters")),
}
_TOPICS = tuple(path_of(MqttOutput, f"{each}_topic") for each in ("notifications", "dead_letters"))


def _is_sink(kind: str, values: Values) -> bool:
    transport, further = _SINKS
    return kind in (values[transport], *values[further])


def _reads_a_queue_of_a_sink(values: Values) -> bool:
    return values[_SOURCE] == "xms" and any(
        _is_sink(kind, values) and values[url] == values[_XMS_URL] and values[_QUEUE] in {values[each] for each in queues}
        for (kind, url), queues in _QUEUES.items()
    )


def _reads_a_topic_of_a_sink(values: Values) -> bool:
    is_one_broker = values[_SOURCE] == "mqtt" and _is_sink("mqtt", values) and values[_MQTT_OUT] == values[_MQTT_URL]
    return is_one_broker and any(_matches(each, values[topic]) for each in values[_FILTERS] for topic in _TOPICS)


def _matches(topic_filter: str, topic: str) -> bool:
    """Return whether a filter of MQTT takes a topic. What ends in # also takes the topic above."""
    levels, named = topic_filter.split("/"), topic.split("/")
    if levels[-1] == "#":
        levels = levels[:-1]
        named = named[: len(levels)]
    return len(levels) == len(named) and all(level in ("+", name) for level, name in zip(levels, named, strict=True))


BRIDGE_CONSTRAINTS = (
    Constraint(
        (_START, _ENABLED, _INGRESS),
        lambda values: not values[_ENABLED] or values[_START] == values[_INGRESS],
        f"is not {_INGRESS}: what the bridge appends would not be read; set both to kafka, or both to file",
    ),
    Constraint(
        (_QUEUE, _ENABLED, _SOURCE, _XMS_URL, _JMS_OUT, _XMS_OUT, *(each for one in _QUEUES.values() for each in one), *_SINKS),
        lambda values: not values[_ENABLED] or not _reads_a_queue_of_a_sink(values),
        "is a queue to which the service writes on the same broker: it would read its own output; name another queue",
    ),
    Constraint(
        (_FILTERS, _ENABLED, _SOURCE, _MQTT_URL, _MQTT_OUT, *_TOPICS, *_SINKS),
        lambda values: not values[_ENABLED] or not _reads_a_topic_of_a_sink(values),
        f"takes {_TOPICS[0]} or {_TOPICS[1]} on the same broker: the service would read its own output; name other topics",
    ),
)


def doubtful_bridges(values: Values) -> Iterator[str]:
    """Return what the bridge promises less."""
    if not values[_ENABLED] or values[_SOURCE] != "mqtt":
        return
    if values[_QOS] == 0:
        yield f"{_QOS}: is 0: the broker does not wait for an acknowledgement, so messages may be lost. Set it to 1"
    if values[_QOS] == 2:
        yield (
            f"{_QOS}: is 2: the broker gives a message up once the bridge has it in memory, so a crash of the bridge may lose "
            "some. Set it to 1: nothing is lost then, and doubled envelopes are dropped"
        )
