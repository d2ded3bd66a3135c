"""The alert rules: each says what happened and where to read on, names metrics that there are, and fires when it should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.promtool import known_metrics, metrics_in, promtool

from notification_service.console.prometheus import ServiceCollector
from notification_service.status.aggregation import AggregationStatus, StoreCounts
from notification_service.status.report import ExitCause, Identity, State, report
from notification_service.status.service_report import NOT_RUNNING, STALE, service_report
from resequencer.order import OrderKind, OrderResult

ALERTS = Path("deploy/alerts.yml")
TESTS = Path("deploy/alerts-test.yml")
DASHBOARD = Path("deploy/dashboard.json")
RUNBOOK = Path("docs/runbook.md")
GROUPS = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_says_what_happened_how_grave_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert all(each.strip().endswith(".") for name, each in rule["annotations"].items() if name != "runbook_url")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (Path(page), anchor) == (RUNBOOK, rule["alert"].lower())


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_names_metrics_that_there_are(rule: dict[str, Any]) -> None:
    named = metrics_in(rule["expr"])
    assert named
    assert named - known_metrics() == set()


def test_each_counter_of_a_rule_or_an_increase_is_0_from_the_start() -> None:
    """Prometheus sees an increase only between two samples: a series that begins with its first event would hide that."""
    expressions = [rule["expr"] for rule in RULES]
    expressions += [each for each in re.findall(r'"expr": "(.*)"', DASHBOARD.read_text(encoding="utf-8")) if "increase(" in each]
    counters = {each for expression in expressions for each in metrics_in(expression) if each.endswith(("_total", "_count"))}
    starting = report(Identity(17, "local.conf", 0), State.STARTING, None, 0)
    stores = AggregationStatus(store_counts=(StoreCounts("payments", 0, 0, 0, 0),))
    collector = ServiceCollector(lambda: service_report([starting], 0, is_running=True), find_aggregation=lambda: stores)
    samples = [sample for family in collector.collect() for sample in family.samples if sample.name in counters]
    assert {each.name for each in samples} == counters
    assert {each.value for each in samples} == {0}
    for name, label, known in (
        ("worker_exits", "cause", [each for each in ExitCause if each is not ExitCause.ORDERED] + ["ordered"]),
        ("orders", "order", [*OrderKind, "unreadable"]),
        ("orders", "outcome", OrderResult),
    ):
        assert {each.labels[label] for each in samples if each.name == f"resequencer_{name}_total"} == set(known)


def test_the_runbook_has_a_heading_and_a_row_for_each_alert_and_no_others() -> None:
    page = RUNBOOK.read_text(encoding="utf-8")
    alerts = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", alerts, re.MULTILINE) == NAMES
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \|", alerts, re.MULTILINE)
    assert rows == [(rule["alert"], rule["alert"].lower(), rule["labels"]["severity"]) for rule in RULES]


def test_the_runbook_has_a_heading_for_each_state() -> None:
    states = RUNBOOK.read_text(encoding="utf-8").partition("\n## States\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### (.*)$", states, re.MULTILINE)) == sorted(
        (*(each.value for each in State), STALE, NOT_RUNNING)
    )


@pytest.mark.slow
def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@pytest.mark.slow
def test_each_alert_fires_alone_and_only_after_its_time() -> None:
    done = promtool("test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_each_alert_has_a_case_in_which_it_is_missed_if_it_never_fires(tmp_path: Path) -> None:
    groups = [{**group, "rules": [{**rule, "expr": "vector(1) > 2"} for rule in group["rules"]]} for group in GROUPS]
    (tmp_path / ALERTS.name).write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    (tmp_path / TESTS.name).write_text(TESTS.read_text(encoding="utf-8"), encoding="utf-8")
    done = promtool("test", "rules", tmp_path / TESTS.name)
    assert done.returncode == 1
    assert set(re.findall(r'exp: \{alertname="(\w+)"\} \S+\s+got: nil', done.stdout + done.stderr)) == set(NAMES)
