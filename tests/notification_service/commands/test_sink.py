"""`resequencer sink`: attributes that are set hold, are reported, and are refused with the reason."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from guardian.ports import TransportRefused
from guardian.region import RegionState
from notification_service.command_line import main
from notification_service.configuration.configuration import load
from notification_service.status.sink_attributes import SinkAttributesFile
from notification_service.wiring import regions
from notification_service.wiring.regions import CurrentSettings

N = "payment-status-notification"
Run = Callable[..., int]


@pytest.fixture
def file(write: Callable[..., Path], tmp_path: Path) -> Path:
    """The configuration of a service with a sink mqtt."""
    (tmp_path / "run").mkdir()
    mqtt = 'transport = mqtt, mqtt.url = "mqtt://me:s3cret@first:1883", resequencer.storage-type = embedded'
    return write(f'{N} {{ run-directory = "{tmp_path}/run", {mqtt} }}')


@pytest.fixture
def run(file: Path) -> Run:
    return lambda *arguments: main(["sink", *arguments, "--config", str(file)])


def current(file: Path, *overrides: str) -> CurrentSettings:
    return CurrentSettings(load(file, overrides), 0)


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    return {name: each["value"] for name, each in json.loads(capsys.readouterr().out).items()}


def test_what_is_set_is_added_to_what_was_set_and_a_reset_goes_back_to_what_is_configured(
    run: Run, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = current(file)
    configured = settings()
    assert run("set", "--qos", "2") == 0
    assert run("set", "--url", "mqtts://second", "--notifications-topic", "A/B") == 0
    (log,) = (file.parent / "run").glob("console-audit-*.jsonl")
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["action"], each["from"], each["attributes"]) for each in noted] == [
        ("sink.set", "shell", "qos = 2"),
        ("sink.set", "shell", "url = mqtts://second, notifications.topic = A/B"),
    ]
    capsys.readouterr()
    assert run("show", "--json") == 0
    letters = configured.dead_letters
    assert shown(capsys) == {
        "url": "mqtts://second:8883",
        "qos": 2,
        "notifications.topic": "A/B",
        "dead-letters.topic": letters,
    }
    found = settings()
    assert (found.qos, found.place, found.notifications) == (2, "mqtts://second:8883", "A/B")
    assert "qos = 2 (configured: 1), set by" in (found.changes or "")
    assert current(file)() == found, "it holds after a start"
    assert run("reset") == 0
    assert settings() == configured


def test_the_configuration_counts_once_it_names_another_value(run: Run, file: Path) -> None:
    assert run("set", "--qos", "2", "--dead-letters-topic", "D") == 0
    found = current(file, f"{N}.mqtt.qos=0")()
    assert (found.qos, found.dead_letters) == (0, "D")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "changes nothing: give one of --url, --qos, --notifications-topic, --dead-letters-topic"),
        (("--qos", "3"), "--qos: is refused; expected: a whole number from 0 to 2"),
        (("--url", "tcp://h"), "begins with mqtt:// or mqtts://"),
        (("--url", "mqtt://me:s3cret@h"), "has a login, which others could read"),
        (("--notifications-topic", "A/#"), "a topic of MQTT"),
        (("--notifications-topic", "PAYMENT_STATUS_NOTIFICATION/DEAD_LETTERS"), "of notifications and of dead letters"),
    ],
)
def test_what_is_refused_changes_nothing(
    run: Run, file: Path, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], problem: str
) -> None:
    assert run("set", *arguments) != 0
    output = capsys.readouterr().err
    assert problem in output
    assert "s3cret" not in output
    assert current(file)().changes is None


def test_an_order_that_is_given_during_a_reset_is_refused_with_a_warning(
    run: Run, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    region = SimpleNamespace(state=RegionState.RESETTING)
    service = SimpleNamespace(
        workers=[("ready", SimpleNamespace(slot=0, region=None)), ("ready", SimpleNamespace(slot=1, region=region))]
    )
    monkeypatch.setattr(regions, "find_service", lambda *_: ("ready", service, None))
    for arguments in (("set", "--qos", "2"), ("reset",)):
        assert run(*arguments) == 1
        assert "the region of worker 1 is being reset, so nothing was changed" in capsys.readouterr().err
    assert current(file)().qos == 1
    region.state = RegionState.WAITING
    assert run("set", "--qos", "2") == 0
    assert current(file)().qos == 2


def test_qos_0_is_reported(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("set", "--qos", "0") == 0
    assert "qos 0 promises nothing" in capsys.readouterr().err


def test_no_login_is_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show") == 0
    assert "url = mqtt://first:1883 (as configured)" in (output := capsys.readouterr().out)
    assert "s3cret" not in output


def test_a_login_of_the_configuration_is_used_with_another_server(run: Run, file: Path) -> None:
    overrides = (f"{N}.mqtt.user=me", f"{N}.mqtt.password=s3cret")
    before = current(file, *overrides)()
    assert run("set", "--url", "mqtt://second") == 0
    after = current(file, *overrides)()
    assert after == replace(before, url="mqtt://second", changes=after.changes)


@pytest.mark.parametrize("text", ["{", '{"qos": {"configured": 1, "value": 9, "by": "", "at": ""}}', "[]"])
def test_a_damaged_file_refuses_until_it_is_removed(
    run: Run, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    settings = current(file)
    stored = SinkAttributesFile(tmp_path / "run")
    stored.path.write_text(text)
    with pytest.raises(TransportRefused, match=r"is damaged.*sink reset"):
        settings()
    assert run("show") == 1
    assert "`resequencer sink reset` removes" in capsys.readouterr().err
    assert run("reset") == 0
    assert settings().qos == 1


def test_a_service_without_the_sink_has_no_attributes(write: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sink", "show", "--config", str(write("", "other.conf"))]) != 0
    assert "names no mqtt" in capsys.readouterr().err
