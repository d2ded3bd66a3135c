"""The metrics of the aggregation and of the bridge."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from notification_service.console.groups.index import GroupTotals
from notification_service.status.aggregation import AggregationStatus, BridgeState, BridgeStatus, StoreStatus

_PREFIX = "resequencer_"
AGGREGATION_WORKERS = (
    "aggregation_workers_running",
    "How many aggregation workers of the service run; absent where payments of messages are not counted.",
)
STORE_GAUGES: Mapping[str, tuple[str, Callable[[StoreStatus], float]]] = {
    "aggregation_store_stands_still": (
        "1 while a problem keeps the store from applying commands, also of a single partition; 0 otherwise.",
        lambda each: int(each.problem is not None or each.untaken > 0),
    ),
    "aggregation_commands_behind": (
        "What is not applied yet of the commands that the service's workers read: offsets, with files bytes.",
        lambda each: each.behind,
    ),
}
"""Gauges with the label `store`."""
STORE_COUNTERS: Mapping[str, tuple[str, Callable[[StoreStatus], float]]] = {
    "aggregation_commands_applied": ("Commands that were applied, since the workers' starts.", lambda each: each.applied),
    "aggregation_completions": (
        "Completions, as reports on groups are, since the workers' starts.",
        lambda each: each.completed,
    ),
    "aggregation_dead_letters": ("Commands that cannot be applied, since the workers' starts.", lambda each: each.dead_letters),
}
"""Counters with the label `store`."""
GROUPS = ("groups", "Groups by their state, as they were within the last minutes; absent while they cannot be read.")
"""A gauge with the label `state`."""
GROUP_GAUGES: Mapping[str, tuple[str, Callable[[GroupTotals], float | None]]] = {
    "groups_with_problems": (
        "Groups that are not through and cannot complete by themselves; absent as above.",
        lambda each: each.with_problems,
    ),
    "groups_oldest_open_timestamp_seconds": (
        "When the oldest group that is not through began; absent if there is none.",
        lambda each: None if each.oldest_at is None else each.oldest_at / 1_000,
    ),
}


def aggregation_metrics(status: AggregationStatus, totals: GroupTotals | None) -> Iterator[Metric]:
    """Yield the metrics. `totals` is None where groups are not counted, or cannot be read."""
    name, meaning = AGGREGATION_WORKERS
    running = GaugeMetricFamily(f"{_PREFIX}{name}", meaning, labels=())
    if status.aggregation_workers:
        running.add_metric((), sum(each.problem is None for each in status.aggregation_workers))
    yield running
    for name, (meaning, get) in STORE_GAUGES.items():
        gauge = GaugeMetricFamily(f"{_PREFIX}{name}", meaning, labels=("store",))
        for each in status.stores:
            gauge.add_metric((each.store,), get(each))
        yield gauge
    for name, (meaning, get) in STORE_COUNTERS.items():
        counter = CounterMetricFamily(f"{_PREFIX}{name}", meaning, labels=("store",))
        for each in status.stores:
            counter.add_metric((each.store,), get(each))
        yield counter
    name, meaning = GROUPS
    groups = GaugeMetricFamily(f"{_PREFIX}{name}", meaning, labels=("state",))
    for state, count in ({} if totals is None else totals.by_state).items():
        groups.add_metric((state,), count)
    yield groups
    for name, (meaning, find) in GROUP_GAUGES.items():
        family = GaugeMetricFamily(f"{_PREFIX}{name}", meaning, labels=())
        if totals is not None and (value := find(totals)) is not None:
            family.add_metric((), value)
        yield family


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
