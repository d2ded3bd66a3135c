"""Metrics of the bridge, as it reports."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from notification_service.status.bridge import BridgeState, BridgeStatus

_PREFIX = "resequencer_"
BRIDGE_GAUGES: Mapping[str, tuple[str, Callable[[BridgeState], float]]] = {
    "bridge_running": (
        "1 while the bridge runs, 0 while it does not; absent where none is configured.",
        lambda each: int(each.process_id is not None),
    ),
    "bridge_stands_still": (
        "1 while the bridge takes nothing, because its source or its start does not go on, or it does not run; 0 otherwise.",
        lambda each: int(each.problem is not None),
    ),
    "bridge_messages_waiting": (
        "Messages that the bridge has taken and that are not acknowledged yet.",
        lambda each: each.waiting,
    ),
}
BRIDGE_COUNTER = (
    "bridge_messages_appended",
    "Messages that the bridge has appended and acknowledged, since its start.",
)


def bridge_metrics(status: BridgeStatus) -> Iterator[Metric]:
    """Yield the metrics, without samples where no bridge is configured."""
    bridge = status.bridge
    for name, (meaning, get) in BRIDGE_GAUGES.items():
        gauge = GaugeMetricFamily(f"{_PREFIX}{name}", meaning, labels=())
        if bridge is not None:
            gauge.add_metric((), get(bridge))
        yield gauge
    name, meaning = BRIDGE_COUNTER
    counter = CounterMetricFamily(f"{_PREFIX}{name}", meaning, labels=())
    if bridge is not None:
        counter.add_metric((), bridge.appended)
    yield counter
