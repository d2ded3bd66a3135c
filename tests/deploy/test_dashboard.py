"""The Grafana dashboard: its expressions are PromQL and name metrics that there are, and its panels do not overlap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.promtool import known_metrics, metrics_in, promtool

DASHBOARD: dict[str, Any] = json.loads(Path("deploy/dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
VARIABLES = {"$job": "resequencer", "$instance": ".*", "$__rate_interval": "1m"}


def filled_in(expression: str) -> str:
    """Return the expression as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_an_expression_names_metrics_that_there_are_and_no_unknown_variable(title: str, expression: str) -> None:
    named = metrics_in(expression)
    assert named
    assert named - known_metrics() == set()
    assert "$" not in filled_in(expression)


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_says_what_it_shows_and_asks_the_chosen_prometheus(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert {each["datasource"]["uid"] for each in (panel, *panel["targets"])} == {"${datasource}"}
    references = [each["refId"] for each in panel["targets"]]
    assert len(set(references)) == len(references)


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (each["gridPos"] for each in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_each_variable_of_an_expression_can_be_chosen() -> None:
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "job", "instance"}


def as_rules(expressions: list[str]) -> str:
    rules = [{"record": f"panel:number:{at}", "expr": filled_in(each)} for at, each in enumerate(expressions)]
    return yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})


@pytest.mark.slow
def test_promtool_accepts_each_expression(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(as_rules([each for _, each in EXPRESSIONS]), encoding="utf-8")
    done = promtool("check", "rules", tmp_path / "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EXPRESSIONS)} rules found" in done.stdout
