"""A benchmark's table compares runs of the same round, and a run that is finished is not repeated."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import _runner
from benchmarks._runner import Case, Figures, arguments, measure

Ours = Callable[..., list[str]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ours:
    """Run a benchmark of two cases with these arguments; return the lines of its table and the cases that were measured."""
    monkeypatch.setattr(_runner, "_KEPT", tmp_path)

    def run(*given: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["example.py", *given])
        measured: list[str] = []

        def figures(name: str, costs: list[float]) -> Callable[[], Figures]:
            return lambda: measured.append(name) or {"CPU us": costs[measured.count(name) - 1], "B": 7}

        cases = [Case("loop", figures("loop", [10, 30, 20])), Case("worker", figures("worker", [20, 40, 40]), "loop", 0.7)]
        measure(arguments("An example.", large={"size": 9}, size=1), cases)
        return [*capsys.readouterr().out.splitlines(), " ".join(measured)]

    return run


def test_a_ratio_is_the_median_of_those_of_the_rounds(ran: Ours) -> None:
    table = ran("--rounds", "3")
    assert table[0].split() == ["CPU", "us", "ratio", "B", "goal"]
    assert table[2].split() == ["worker", "40.0", "0.50", "(0.50-0.75)", "7.00", "0.7"]
    assert table[-1] == "loop worker worker loop loop worker"


def test_a_case_is_measured_with_the_one_that_it_is_compared_with(ran: Ours) -> None:
    assert ran("--only", "work")[-1] == "loop worker"
    assert ran("--only", "loop")[-1] == "loop"


def test_finished_runs_are_taken_over(ran: Ours) -> None:
    ran()
    assert ran("--continue", "--rounds", "2")[-1] == "worker loop"


@pytest.mark.parametrize("changed", [("--size", "2"), ("--large",)])
def test_a_run_with_other_settings_is_another(ran: Ours, changed: tuple[str, ...]) -> None:
    ran()
    assert ran("--continue", *changed)[-1] == "loop worker"


def test_without_continue_each_run_is_new(ran: Ours) -> None:
    ran()
    assert ran()[-1] == "loop worker"
