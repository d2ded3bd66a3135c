"""What the bridge cannot do, and is refused, and what it promises less: docs/bridge.md."""

from collections.abc import Iterator

from bridge.settings import BridgeMqtt, BridgeSettings, BridgeXms
from daemon.configuration.constraint import Constraint, Values
from daemon.configuration.region_sections import JmsOutput
from daemon.configuration.schema import path_of
from daemon.configuration.sections import Ingress, Notifications

_ENABLED = path_of(BridgeSettings, "is_enabled")
_SOURCE, _START = path_of(BridgeSettings, "source"), path_of(BridgeSettings, "start")
_INGRESS = path_of(Ingress, "transport")
_SINK, _FURTHER = path_of(Notifications, "transport"), path_of(Notifications, "further_transports")
_QOS = path_of(BridgeMqtt, "qos")
_QUEUE, _XMS_URL = path_of(BridgeXms, "queue"), path_of(BridgeXms, "url")
_JMS_URL = path_of(JmsOutput, "url")
_QUEUES = tuple(path_of(JmsOutput, f"{each}_queue") for each in ("notifications", "dead_letters", "markers"))

BRIDGED = {
    "mqtt": "messages of MQTT come through the bridge: set it to kafka or file, and ipf.bridge.source to mqtt (docs/bridge.md)",
    "xms": "messages of IBM MQ come through the bridge: set it to kafka or file, and ipf.bridge.source to xms (docs/bridge.md)",
}
"""How to read what the ingress refuses, because it cannot be read again."""


def _reads_a_queue_of_a_sink(values: Values) -> bool:
    is_one_broker = (
        values[_SOURCE] == "xms" and "jms" in (values[_SINK], *values[_FURTHER]) and values[_XMS_URL] == values[_JMS_URL]
    )
    return is_one_broker and values[_QUEUE] in {values[each] for each in _QUEUES}


BRIDGE_CONSTRAINTS = (
    Constraint(
        (_START, _ENABLED, _INGRESS),
        lambda values: not values[_ENABLED] or values[_START] == values[_INGRESS],
        f"is not {_INGRESS}: what the bridge appends would not be read; set both to kafka, or both to file",
    ),
    Constraint(
        (_QUEUE, _ENABLED, _SOURCE, _XMS_URL, _JMS_URL, *_QUEUES, _SINK, _FURTHER),
        lambda values: not values[_ENABLED] or not _reads_a_queue_of_a_sink(values),
        "is a queue to which the service writes on the same broker: it would read its own output; name another queue",
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
