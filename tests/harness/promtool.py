"""Prometheus's checker, and the metrics that rules and dashboards may name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from harness.waiting import DEADLINE_SECONDS

from notification_service.console.prometheus import DEPRECATED, ServiceCollector
from servers.prometheus import find_promtool

_OF_OTHERS = {"up", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}
"""Metrics of Prometheus itself and of the kubelet."""


def metrics_in(expression: str) -> set[str]:
    """Return the metrics that a PromQL expression names: all of ours by their prefix, and those of others that are known."""
    others = "|".join(_OF_OTHERS)
    return set(re.findall(rf"\b(?:(?:resequencer|process)_[a-z_]+|{others})\b(?!\()", re.sub(r'"[^"]*"', "", expression)))


class Known(NamedTuple):
    """A metric as a scrape names it, with its type and labels; `instead` is the one that replaces it, if it is deprecated."""

    name: str
    kind: str
    labels: tuple[str, ...]
    instead: str | None


def known_families() -> list[Known]:
    """Return all metrics that a scrape may have, in its order."""
    found = []
    for each in ServiceCollector(lambda: None).collect():
        name = f"{each.name}_total" if each.type == "counter" else each.name
        labels = tuple(getattr(each, "_labelnames"))  # noqa: B009 - mypy does not know it.
        before, _, after = each.documentation.partition(DEPRECATED)
        found.append(Known(name, each.type, labels, after.partition(".")[0] if after and not before else None))
    return found


def known_metrics() -> set[str]:
    """Return the names of the samples that a scrape may have, without deprecated ones."""
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {
        f"{each.name}{part}" for each in known_families() if not each.instead for part in parts.get(each.kind, ("",))
    } | _OF_OTHERS


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_promtool(), *arguments], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
