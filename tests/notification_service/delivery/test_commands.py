"""`resequencer delivery …`: what each command prints, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from notification_service.command_line import main
from notification_service.configuration.configuration import load
from notification_service.delivery.core.answers import Done, Failed, Suspended
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.settings import Step
from notification_service.wiring.delivery import make_ledger
from notification_service.wiring.delivery_sources import open_feed

Run = Callable[..., int]
KEYS = "payment-status-notification"


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "service.conf"
    path.write_text(f"""
        include "{Path("conf/application.conf").absolute()}"
        {KEYS} {{ run-directory = "{tmp_path}", delivery.receivers.tracker {{ url = "http://127.0.0.1:1", on-failed = hold }} }}
    """)
    lines = [{"key": f"u{number % 2}", "headers": {"notification-id": f"N{number}"}, "value": {}} for number in range(4)]
    (tmp_path / "n.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


@pytest.fixture
def run(configuration: Path) -> Run:
    return lambda name, *arguments: main(["delivery", name, "--config", str(configuration), *arguments])


def deliver(configuration: Path) -> None:
    """Take the job in; N0 fails, N1 is delivered, and N3 finds the receiver asleep."""
    settings = load(configuration)
    ledger = make_ledger(settings)
    receiver = ledger.receivers["tracker"]
    intake = ledger.open_intake("monday", "w")
    ((job, source),) = ledger.open_jobs("tracker")
    assert (job, intake is not None) == ("monday", True)
    assert intake is not None
    ledger.take_in(intake, "tracker", open_feed(settings, source, receiver).read({}, 100))
    first, second = ledger.claim("tracker", Step.DELIVER, "w", 50).claims
    ledger.finish("tracker", [ClaimResult(first, Failed("HTTP 400: bad")), ClaimResult(second, Done())])
    (third,) = ledger.claim("tracker", Step.DELIVER, "w", 50).claims
    ledger.finish("tracker", [ClaimResult(third, Suspended("HTTP 401"))])
    ledger.close()


@pytest.mark.parametrize("source", ["files:/n.jsonl", "lively"])
def test_a_source_of_another_version_is_refused_and_is_not_taken_for_the_output(configuration: Path, source: str) -> None:
    settings = load(configuration)
    ledger = make_ledger(settings)
    with pytest.raises(JobRefused, match="start the version that began the job, or cancel it"):
        open_feed(settings, source, ledger.receivers["tracker"])
    ledger.close()


def test_a_job_is_started_shown_repaired_and_cancelled(
    run: Run, configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("start", "monday", "tracker", str(tmp_path / "n.jsonl")) == 0
    assert run("start", "monday", "tracker", str(tmp_path / "n.jsonl")) == 0
    assert "started before monday" in capsys.readouterr().err
    deliver(configuration)
    assert run("show", "monday") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("monday  HELD  to tracker  1 of 4 processed  0 rejected, 1 failed, 0 cancelled, 2 open")
    assert "retries: suspension 1" in shown
    assert run("jobs", "--json") == 0
    assert json.loads(capsys.readouterr().out)["failed"] == 1
    assert run("errors", "monday") == 0
    assert "u0  N0  failed  deliver  1 call" in capsys.readouterr().out
    assert run("waiting", "tracker") == 0
    printed = capsys.readouterr()
    assert "u1  retry (suspension)  deliver due" in printed.out
    assert "unit u0 is held by its failed notification, row 1 of the ledger" in printed.err
    assert run("gates") == 0
    assert "tracker  shut  2 waiting" in capsys.readouterr().out
    assert run("open-gate", "tracker") == 0
    assert run("retry-failed", "monday") == 0
    assert "1 notification of monday will be delivered again" in capsys.readouterr().err
    assert run("cancel", "monday") == 0
    assert run("show", "monday") == 0
    assert "monday  CANCELLED" in capsys.readouterr().out


def test_a_receiver_is_paused_resumed_and_tried_now(
    run: Run, configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("start", "monday", "tracker", str(tmp_path / "n.jsonl"))
    deliver(configuration)
    assert run("pause", "tracker", "--because", "it is repaired") == 0
    assert run("pause", "tracker", "--because", "again") == 1
    assert "tracker is paused since" in capsys.readouterr().err
    assert run("open-gate", "tracker") == 0
    assert "opened the gate of tracker; the receiver stays paused since" in capsys.readouterr().err
    assert run("gates") == 0
    assert "it is repaired" in capsys.readouterr().out
    assert run("retry-now", "tracker", "4") == 1
    assert run("resume", "tracker", "--because", "it is well") == 0
    assert run("waiting", "tracker") == 0
    assert "row 4  u1  retry (suspension)" in capsys.readouterr().out
    assert run("retry-now", "tracker", "4") == 0
    assert "row 4 is due now" in capsys.readouterr().err
    assert run("retry-now", "tracker", "T-0@1") == 1
    assert "expected the number of a row" in capsys.readouterr().err
    log = [json.loads(line) for each in tmp_path.glob("console-audit-*.jsonl") for line in each.read_text().splitlines()]
    noted = [(each["action"].removeprefix("delivery."), each["from"], each.get("because")) for each in log]
    assert noted[0] == ("pause", "shell", "it is repaired")
    assert [action for action, _, _ in noted] == ["pause", "pause", "open-gate", "retry-now", "resume", "retry-now"]


def test_failed_rows_are_counted_before_those_with_an_error_are_delivered_again(
    run: Run, configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("start", "monday", "tracker", str(tmp_path / "n.jsonl"))
    deliver(configuration)
    assert run("retry-failed", "monday", "--error", "BAD", "--count") == 0
    assert "1 notification of monday would be delivered again" in capsys.readouterr().err
    assert run("retry-failed", "monday", "--error", "worse") == 0
    assert "0 notifications of monday will be delivered again" in capsys.readouterr().err
    assert run("retry-failed", "monday", "--error", "bad", "--since", "2000-01-01T00:00Z") == 0
    assert "1 notification of monday will be delivered again" in capsys.readouterr().err
    assert run("retry-failed", "monday", "--late") == 0
    noted = [json.loads(line) for each in tmp_path.glob("console-audit-*.jsonl") for line in each.read_text().splitlines()]
    assert [(each["error"], each["since"]) for each in noted[1:2]] == [("bad", "2000-01-01T00:00:00.000Z")]
    assert [(each["action"], each["job"], each["late"]) for each in noted[2:]] == [("delivery.retry-failed", "monday", "true")]


def test_the_status_of_delivery_without_a_service_says_where_to_look(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status") == 0
    printed = capsys.readouterr()
    assert (printed.out, "the service does not run; `resequencer delivery gates`" in printed.err) == ("", True)


def test_a_held_unit_is_released(run: Run, configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("start", "monday", "tracker", str(tmp_path / "n.jsonl"))
    deliver(configuration)
    assert run("release", "tracker", "u0") == 0
    assert run("release", "tracker", "u0") == 1
    assert "unit u0 is not held for tracker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("start", "j", "unknown", "n.jsonl"), "there is no receiver unknown; known are tracker"),
        (("start", "live-tracker", "tracker", "n.jsonl"), "live-… and schedule-… are the names of the jobs that never end"),
        (("start", "j", "tracker", "missing.jsonl"), "missing.jsonl is missing"),
        (("show", "j"), "there is no job j"),
        (("errors", "j"), "there is no job j"),
        (("cancel", "j"), "there is no job j"),
        (("retry-failed", "j"), "there is no job j"),
        (("open-gate", "tracker"), "the gate of tracker is open"),
        (("waiting", "unknown"), "there is no receiver unknown"),
    ],
)
def test_what_is_not_possible_is_refused_with_its_name(
    run: Run, arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 1
    assert expected in capsys.readouterr().err


def test_without_a_receiver_the_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delivery", "jobs"]) == 3
    assert f"{KEYS}.delivery.receivers: is empty" in capsys.readouterr().err
