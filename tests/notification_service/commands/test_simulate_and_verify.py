"""`resequencer simulate` and `verify`: input that no service processed is reported as lost."""

import json

import pytest
from harness.packages import ROOT
from harness.service_under_test import Service

import notification_service.commands.simulate
import notification_service.commands.verify
from notification_service.command_line import main
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.settings import HandlerSettings, make_handler
from notification_service.supervision.exit_code import ExitCode

N = "payment-status-notification"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty working directory; the default configuration's run directory is run/application/."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run" / "application"


class Time:
    """A clock that advances only in pauses."""

    def __init__(self):
        self.ms = 0

    def now(self):
        return self.ms

    def pause(self, milliseconds):
        self.ms += milliseconds


@pytest.fixture(autouse=True)
def time(monkeypatch):
    time = Time()
    for module in (notification_service.commands.simulate, notification_service.commands.verify):
        monkeypatch.setattr(module, "steady_ms", time.now)
        monkeypatch.setattr(module, "pause", time.pause)
    return time


def serve(directory):
    """Let a service process the input and end."""
    service = Service(directory)
    with (ROOT / "conf" / "notification-settings.csv").open(encoding="utf-8", newline="") as file:
        service.handler = make_handler(HandlerSettings(), parse_notification_settings(file, "settings"))
    service.start()
    service.run()
    service.run_after(60_000)
    service.stop()


def simulate(*arguments):
    return main(["simulate", "--units", "5", "--late", "0", *arguments])


def test_what_was_simulated_is_said_with_its_seed(directory, capsys):
    assert simulate("--seed", "3") == 0
    output = capsys.readouterr().out
    assert output.startswith("seed 3: ")
    assert " of 5 units: " in output
    lines = (directory / "in" / "partition-0.jsonl").read_bytes().count(b"\n")
    assert f"seed 3: {lines} lines of" in output
    assert (directory / "expected.jsonl").exists()


def test_the_same_as_json_alone_on_stdout(directory, capsys):
    assert simulate("--seed", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 3


def test_without_a_seed_a_new_one_is_drawn_and_said(directory, capsys):
    seeds = set()
    for _ in range(3):
        assert simulate("--json") == 0
        seeds.add(json.loads(capsys.readouterr().out)["seed"])
    assert len(seeds) > 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--losses", "60%", "--late", "60%"), ExitCode.CONFIGURATION_REFUSED),
        (("--backlog", "--rate", "500/s"), ExitCode.CONFIGURATION_REFUSED),
        (("--rate", "500/s", "--set", f"{N}.resequencer.stash-timeout=100ms"), ExitCode.CONFIGURATION_REFUSED),
        (("--pain001", "nowhere.xml"), ExitCode.FAILED),
    ],
)
def test_what_cannot_be_simulated_is_a_line_and_writes_nothing(directory, capsys, arguments, code):
    assert main(["simulate", "--units", "5", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert not directory.exists()


def test_a_directory_that_cannot_be_written_is_a_line(directory, capsys):
    directory.parent.mkdir()
    directory.write_bytes(b"a file")
    assert simulate() == 1
    assert "Traceback" not in capsys.readouterr().err


def test_output_that_is_not_there_is_all_lost(directory, capsys):
    assert simulate("--seed", "3", "--losses", "0", "--garbage", "0") == 0
    capsys.readouterr()
    assert main(["verify"]) == 1
    text = capsys.readouterr().out
    assert " lost\n" in text
    assert "every promise was held" not in text
    assert main(["verify", "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["good"] is False
    assert verdict["counts"]["lost"] > 0


def test_nothing_to_compare_with_is_a_line_not_a_success(directory, capsys):
    assert main(["verify"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "expected.jsonl" in err
    assert err.count("\n") == 1


def test_a_rate_is_kept_and_the_one_achieved_is_reported(directory, capsys, time):
    assert simulate("--rate", "100/s", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["lines_per_second"] == pytest.approx(100, rel=0.1)
    assert time.ms == pytest.approx(summary["lines"] * 10, abs=60)


def test_what_is_too_large_for_the_configured_service_is_among_the_garbage(directory, capsys):
    limit = "ipf.processing-data.ingress.max-record-bytes=50000"
    assert simulate("--seed", "3", "--garbage", "60%", "--set", limit) == 0
    lines = (directory / "in" / "partition-0.jsonl").read_bytes().splitlines()
    assert sum(len(line) > 50_000 for line in lines) == 1
    assert '"too-large"' in (directory / "expected.jsonl").read_text()


def test_who_stops_a_simulation_is_told_what_becomes_of_it(directory, capsys, monkeypatch):
    def interrupted(milliseconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(notification_service.commands.simulate, "pause", interrupted)
    assert simulate("--rate", "50/s") == 1
    assert "the input has lines that are not expected" in capsys.readouterr().err


def test_what_a_service_made_of_it_is_followed_to_its_end(directory, capsys):
    assert simulate("--seed", "3", "--conflicts", "10%") == 0
    serve(directory)
    capsys.readouterr()
    assert main(["verify", "--follow"]) == 0
    line, verdict, promise = capsys.readouterr().out.splitlines()
    assert "5 units complete, 0 outstanding" in line
    assert line.endswith("0 deviations")
    assert "of 5 units compared by SEQUENCE" in verdict
    assert "every promise was held" in promise
    assert main(["verify"]) == 0
    assert capsys.readouterr().out.splitlines() == [verdict, promise]


def test_followed_as_json_each_line_is_an_object_and_the_last_the_verdict(directory, capsys):
    assert simulate("--seed", "3", "--losses", "0") == 0
    serve(directory)
    capsys.readouterr()
    assert main(["verify", "--follow", "--json"]) == 0
    look, verdict = map(json.loads, capsys.readouterr().out.splitlines())
    assert look["is_complete"] is verdict["good"] is True


def test_when_nothing_comes_following_ends_with_what_is_lost(directory, capsys, time):
    assert simulate("--seed", "3", "--losses", "0", "--garbage", "0") == 0
    capsys.readouterr()
    assert main(["verify", "--follow", "--interval", "5", "--give-up-after", "20"]) == 1
    *looks, _, lost = (line for line in capsys.readouterr().out.splitlines() if not line.startswith(" "))
    assert len(looks) == 5
    assert lost.endswith(" lost")
    assert time.ms == 20_000
    assert main(["verify", "--follow"]) == 1
    assert time.ms == 20_000 + 28_000 + 60_000


def test_who_stops_following_is_told_that_it_was_not_all(directory, capsys, monkeypatch):
    def interrupted(milliseconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(notification_service.commands.verify, "pause", interrupted)
    assert main(["verify", "--follow"]) == 1
    assert "before everything had arrived" in capsys.readouterr().err


CLOUDEVENTS = ("--set", "ipf.processing-data.ingress.events.format=cloudevents", f"{N}.handler=pass-through")


def test_what_is_simulated_is_what_the_service_reads(directory, capsys):
    assert simulate("--seed", "3", *CLOUDEVENTS) == 0
    assert b"order.created" in (directory / "in" / "partition-0.jsonl").read_bytes()
    assert main(["verify", *CLOUDEVENTS]) == 1
    assert "0 notifications of 5 units compared by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (('ipf.processing-data.ingress.events { format = mapped, mapped.sequence = "header:n" }',), "events.format: is mapped"),
        ((f"{N}.transport=jms",), "simulate writes them to files and to Kafka"),
        ((f"{N}.resequencer.first-sequence=0",), "first-sequence: is not 1"),
    ],
)
def test_what_the_simulator_cannot_write_is_refused_with_its_key(directory, capsys, overrides, reason):
    assert simulate(*CLOUDEVENTS, *overrides) == ExitCode.CONFIGURATION_REFUSED
    assert reason in capsys.readouterr().err
    assert not directory.exists()


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ((f"{N}.handler=pass-through",), "'pass-through' does not fit what simulate writes"),
        ((f"{N}.handler=my.own:Handler",), "'my.own:Handler' is a handler of your own"),
        ((*CLOUDEVENTS[1:2], f"{N}.handler=my.own:Handler"), "verify needs pass-through"),
    ],
)
def test_what_has_no_expectation_is_not_compared(directory, capsys, overrides, reason):
    assert main(["verify", "--set", *overrides]) == ExitCode.CONFIGURATION_REFUSED
    assert reason in capsys.readouterr().err
