"""Prometheus's checker, and the metrics that rules and dashboards may name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from harness.waiting import DEADLINE_SECONDS

from notification_service.console.prometheus import (
    AGGREGATION_WORKERS,
    ARCHIVE_METRICS,
    BRIDGE_COUNTER,
    BRIDGE_GAUGES,
    DELIVERY_WORKERS,
    GATE_METRICS,
    GROUP_GAUGES,
    GROUPS,
    METRICS,
    NEW_DEAD_LETTERS,
    RETRIES,
    SCHEDULE_METRICS,
    SERVICE_METRICS,
    STORE_COUNTERS,
    STORE_GAUGES,
    TOPIC_METRICS,
)
from servers.prometheus import find_promtool

_OF_OTHERS = {"up", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}
"""Metrics of Prometheus itself and of the kubelet."""


def metrics_in(expression: str) -> set[str]:
    """Return the metrics that a PromQL expression names: all of ours by their prefix, and those of others that are known."""
    others = "|".join(_OF_OTHERS)
    return set(re.findall(rf"\b(?:resequencer_[a-z_]+|{others})\b(?!\()", re.sub(r'"[^"]*"', "", expression)))


def known_metrics() -> set[str]:
    """Return the names of the samples that a scrape may have."""
    histograms = {
        f"{each.full_name}{part}" for each in METRICS if each.kind == "histogram" for part in ("_bucket", "_sum", "_count")
    }
    plain = {each.full_name for each in METRICS if each.kind != "histogram"}
    delivery = (DELIVERY_WORKERS[0], *GATE_METRICS, RETRIES[0], *TOPIC_METRICS, *SCHEDULE_METRICS)
    counters = (f"{name}_total" for name in STORE_COUNTERS)
    aggregation = (AGGREGATION_WORKERS[0], *STORE_GAUGES, *counters, GROUPS[0], *GROUP_GAUGES)
    bridge = (*BRIDGE_GAUGES, f"{BRIDGE_COUNTER[0]}_total")
    names = (*SERVICE_METRICS, NEW_DEAD_LETTERS[0], *ARCHIVE_METRICS, *delivery, *aggregation, *bridge)
    service = {f"resequencer_{name}" for name in names}
    return plain | histograms | service | _OF_OTHERS


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_promtool(), *arguments], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
