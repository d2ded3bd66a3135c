"""`resequencer bridge`: when it does not begin, and what it says then."""

from pathlib import Path

import pytest

from notification_service.command_line import main
from notification_service.status.aggregation import BridgeReport, bridge_file, bridge_lines, find_bridge
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import RunLock


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in the process of the tests: it leaves the signals and logs of that alone."""
    monkeypatch.setattr("notification_service.commands.command.StopSignal.install", lambda _: None)
    monkeypatch.setattr("notification_service.commands.run.configure_logs", lambda _: None)


def test_without_a_bridge_in_the_configuration_it_names_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bridge"]) == ExitCode.CONFIGURATION_REFUSED
    assert "ipf.bridge.enabled: is false: set it to true" in capsys.readouterr().err


def test_a_missing_client_is_named_with_the_remedy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_service.wiring.regions.find_spec", lambda _: None)
    start = ["--set", "ipf.bridge.enabled=true", "ipf.bridge.start=file"]
    assert main(["bridge", *start]) == ExitCode.CONFIGURATION_REFUSED
    remedy = "install it by `make setup-jms`, or pip install '.[mqtt]'"
    assert f"ipf.bridge.source: is mqtt, whose client is not installed; {remedy}" in capsys.readouterr().err
    assert main(["bridge", *start, "ipf.bridge.source=xms"]) == ExitCode.CONFIGURATION_REFUSED
    assert "pip install '.[jms]'" in capsys.readouterr().err


def test_a_second_bridge_of_a_run_directory_does_not_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RunLock(tmp_path, "bridge")
    lock.acquire()
    settings = ["ipf.bridge.enabled=true", "ipf.bridge.start=file", f"payment-status-notification.run-directory={tmp_path}"]
    assert main(["bridge", "--set", *settings]) == ExitCode.FAILED
    assert "in use by the service with process id" in capsys.readouterr().err
    lock.release()


def test_its_state_is_shown_for_people(tmp_path: Path) -> None:
    def lines(report: BridgeReport | None) -> list[str]:
        file = bridge_file(tmp_path)
        if report is not None:
            file.write(report)
        return bridge_lines(find_bridge(tmp_path, 17, 1_774_740_000_000))

    assert lines(None) == ["bridge: it is starting"]
    now = "2026-03-28T23:20:00.000Z"
    runs = BridgeReport(17, 18, now, None, "mqtt://b T/#", "topic T", 1, 2, ("a note",))
    assert lines(runs) == [
        "bridge (process 18): runs",
        "bridge: from mqtt://b T/# to topic T: 1 message appended, 2 not acknowledged yet",
        "bridge: a note",
    ]
    assert lines(BridgeReport(17, 18, now, "start: it is away", "s", "t"))[0] == "bridge (process 18): start: it is away"
    old = lines(BridgeReport(17, 18, "2026-03-28T23:19:00.000Z", None, "s", "t"))
    assert old[0] == "bridge (process 18): it has not reported since 2026-03-28T23:19:00.000Z"
    assert lines(BridgeReport(17, 17, None, "it ended with 1")) == ["bridge: it ended with 1"]
    assert lines(BridgeReport(16, 18, now)) == ["bridge: it is starting"]
