"""A real Prometheus scrapes a real service, and an alert of deploy/alerts.yml fires and ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from servers.prometheus import PrometheusServer, PrometheusSettings

pytestmark = pytest.mark.slow
HTTP = f"{NOTIFICATION}.http"
ALERT = "ResequencerOldWait"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OperatedService]:
    ports = [f"{HTTP}.{each}=0" for each in ("port", "probes.port", "metrics.port")]
    made = OperatedService(tmp_path, *ports, f"{HTTP}.enabled=true", f"{RESEQUENCER}.stash-timeout=10m")
    Daemon(made).start()
    yield made
    made.verb("stop")


@pytest.fixture
def prometheus(service: OperatedService, tmp_path: Path, own_server: Callable[..., Any]) -> PrometheusServer:
    rules = tmp_path / "alerts.yml"
    rules.write_text(without_patience(Path("deploy/alerts.yml").read_text(encoding="utf-8")), encoding="utf-8")
    metrics = urlsplit(metrics_address(service))
    settings = PrometheusSettings("resequencer", (metrics.netloc,), (rules,), seconds=2)
    started: PrometheusServer = own_server(PrometheusServer, settings).start()
    return started


def without_patience(rules: str) -> str:
    """Return the rules with 3 s in place of the five minutes, and one in place of the next five, that a wait may last."""
    parsed = yaml.safe_load(rules)
    (rule,) = [each for group in parsed["groups"] for each in group["rules"] if each["alert"] == ALERT]
    assert rule["expr"].endswith("> 300")
    rule["expr"] = rule["expr"].removesuffix("300") + "3"
    rule["for"] = "1s"
    return str(yaml.safe_dump(parsed))


def metrics_address(service: OperatedService) -> str:
    def find() -> str | None:
        file = service.run_directory / "console.json"
        urls: dict[str, str] = json.loads(file.read_text()).get("urls", {}) if file.exists() else {}
        return urls.get("metrics")

    found = wait_until(find, "the metrics have an address")
    assert found is not None
    return found


def states_of(prometheus: PrometheusServer) -> Mapping[str, str]:
    return {each["labels"]["alertname"]: each["state"] for each in prometheus.find_alerts()}


def value_of(prometheus: PrometheusServer, expression: str) -> float | None:
    found = prometheus.query(expression)
    return float(found[0]["value"][1]) if found else None


def test_a_payment_that_waits_for_too_long_makes_an_alert_which_ends_when_it_leaves(
    service: OperatedService, prometheus: PrometheusServer
) -> None:
    wait_until(lambda: value_of(prometheus, "resequencer_ready") == 1, "Prometheus has scraped a ready service")
    wait_until(lambda: value_of(prometheus, 'up{job="resequencer"}') == 1, "it is up")
    wait_until(lambda: states_of(prometheus) == {}, "no alert is left of the start")

    service.tell("uow-late", 2)
    wait_until(lambda: states_of(prometheus) == {ALERT: "firing"}, "the alert fires")
    (alert,) = [each for each in prometheus.find_alerts() if each["labels"]["alertname"] == ALERT]
    assert alert["labels"]["severity"] == "critical"
    assert "The oldest wait has lasted" in alert["annotations"]["description"]
    wait_until(lambda: value_of(prometheus, "sum(resequencer_units_waiting)") == 1, "one waits")

    service.tell("uow-late", 1)
    wait_until(lambda: states_of(prometheus) == {}, "the alert ends")
    wait_until(lambda: value_of(prometheus, "sum(resequencer_envelopes_handled_total)") == 2, "both are handled")
    assert service.sequences("uow-late") == [1, 2]


def test_a_stopped_service_is_not_scraped_any_more(service: OperatedService, prometheus: PrometheusServer) -> None:
    wait_until(lambda: value_of(prometheus, 'up{job="resequencer"}') == 1, "Prometheus has scraped it")
    assert service.verb("stop").returncode == 0
    wait_until(lambda: states_of(prometheus).get("ResequencerNotScraped") == "pending", "the alert is pending")
