"""The demo as a new user runs it, and with pain.001 files of the user's own."""

import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from harness.nightly import at_night
from harness.processes.command import run_here
from harness.waiting import DEADLINE_SECONDS

from notification_service.command_line import main
from notification_service.commands import demo as command
from notification_service.supervision.service_process import ServiceProcess

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "pain.001"
"""Files of other projects, beside the repository and no part of it: see tests/notification_service/payments/conftest.py."""


def test_the_demo_puts_payments_in_order_and_shows_it(tmp_path: Path) -> None:
    ended = _demo(tmp_path, "--units", "300", "--seed", "7")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for text in (
        "300 payments from 3 pain.001 files, seed 7; all files in run/demo-7/",
        "What was put in order (seed 7)",
        "out of order on arrival",
        "duplicates dropped",
        "units released at the deadline",
        "notifications ACCC",
        "envelopes per second",
        "Which messages are through",
        "with 5 payments",
        "a payment has no final status",
        "128 messages: 126 complete; 126 group reports, 0 marked incomplete.",
        "One group report, for ",
        "<GrpSts>",
        "0 lost, 0 doubled, 0 out of order, 0 with wrong content: every promise was held.",
        "The story of sim-7-",
        "stashed (waits for sequence:",
        "<Document xmlns=",
        "</Document>",
    ):
        assert text in ended.stdout
    assert "Traceback" not in ended.stderr
    story = ended.stdout.partition("The story of")[2].partition("Its last pain.002")[0]
    assert "    handled " in story, "something that had been stashed was handled when what it waited for came"


def test_the_demo_of_a_shop_puts_its_events_in_order_and_lets_them_leave_as_they_came(tmp_path: Path) -> None:
    ended = _demo(tmp_path, "--events", "shop", "--units", "300", "--seed", "7")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for shown in (
        "300 orders of a shop, seed 7; all files in run/demo-7/",
        "What was put in order (seed 7)",
        "duplicates dropped",
        "units released at the deadline",
        "notifications passed-through",
        "notifications of 300 units compared by SEQUENCE, ",
        "0 lost, 0 doubled, 0 out of order, 0 with wrong content: every promise was held.",
        "The story of order-7-",
        "stashed (waits for sequence:",
        "Its last event, as it was published",
        "resequencer-source-position",
    ):
        assert shown in ended.stdout
    assert "pain.00" not in ended.stdout
    assert "group" not in ended.stdout


def test_the_shop_has_no_payments_and_no_delivery(tmp_path: Path) -> None:
    for arguments in (("--delivery",), ("--pain001", "own.xml")):
        ended = _demo(tmp_path, "--events", "shop", *arguments)
        assert ended.returncode == 3
        assert "--events shop has no payments" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_the_last_line_of_the_demo_opens_a_console_on_what_it_made(tmp_path: Path) -> None:
    ended = _demo(tmp_path, "--units", "20", "--seed", "7")
    program, *arguments = shlex.split(ended.stdout.splitlines()[-1])
    assert program == "resequencer"
    command = [sys.executable, "-m", "notification_service", *arguments, "payment-status-notification.http.port=0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None
            address = console.stdout.readline().removeprefix("console: ").strip()
            unit = ended.stdout.partition("The story of ")[2].partition("\n")[0]
            page = httpx.get(f"{address}/unit", params={"id": unit}, timeout=DEADLINE_SECONDS)
        finally:
            console.terminate()
    assert page.status_code == 200
    assert "PaymentReceived" in page.text


def test_the_same_seed_again_leaves_the_first_run_alone(tmp_path: Path) -> None:
    first = _demo(tmp_path, "--units", "8", "--seed", "1")
    before = _contents(tmp_path / "run" / "demo-1")
    second = _demo(tmp_path, "--units", "8", "--seed", "1")
    assert (first.returncode, second.returncode) == (0, 0)
    assert _contents(tmp_path / "run" / "demo-1") == before
    assert "all files in run/demo-1-2/" in second.stdout
    again = _contents(tmp_path / "run" / "demo-1-2")
    assert {name: again[name] for name in again if name.parts[0] == "in"} == {
        name: before[name] for name in before if name.parts[0] == "in"
    }


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"no samples of other projects in {SAMPLES}")
def test_a_users_own_pain001_files_are_taken(tmp_path: Path) -> None:
    files = sorted(SAMPLES.glob("*.xml"))
    assert len([file for file in files if "invalid" in file.name]) == 2
    ended = _demo(tmp_path, "--units", "40", "--seed", "1", "--pain001", *map(str, files))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"40 payments from {len(files)} pain.001 files" in ended.stdout
    assert "every promise was held" in ended.stdout


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<Document><unclosed>", "own.xml: "),
        ("not XML at all", "own.xml: "),
        ('<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"/>', "not a pain.001"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_pain001_is_a_line_and_leaves_nothing(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "own.xml").write_text(content, encoding="utf-8")
    ended = _demo(tmp_path, "--pain001", "own.xml")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("resequencer: ")
    assert expected in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_demo_with_a_users_configuration_leaves_its_directories_alone(tmp_path: Path) -> None:
    text = "ipf.processing-data.ingress { transport = kafka, file.directory = real-in }\n"
    text += "payment-status-notification { transport = kafka, file.directory = real-out, storage.embedded.file = real.db\n"
    text += "resequencer { storage-type = embedded, strategy = FULL_PAIN001 } }\n"
    (tmp_path / "real.conf").write_text(text, encoding="utf-8")
    ended = _demo(tmp_path, "--units", "10", "--config", "real.conf")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "compared by FULL_PAIN001" in ended.stdout
    assert sorted(each.name for each in tmp_path.iterdir()) == ["real.conf", "run"]


@pytest.mark.parametrize(
    "arguments", [("--units", "0"), *at_night("processes", (("--units", "-1"),), (("--units", "x"),), (("--seed", "-1"),))]
)
def test_a_demo_of_nothing_is_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = _demo(tmp_path, *arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "run").exists()


def _demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(directory, ["demo", *arguments])


def _contents(directory: Path) -> dict[Path, bytes]:
    return {file.relative_to(directory): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def _drop_the_last(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def _double_the_first(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[0]]


def _turn_round(lines: list[bytes]) -> list[bytes]:
    return lines[::-1]


def _change_a_status(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"TxSts":"ACCC"', b'"TxSts":"RJCT"') for line in lines]


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (_drop_the_last, "1 lost"),
        *at_night(
            "processes",
            (_double_the_first, "1 doubled"),
            (_turn_round, "out of order"),
            (_change_a_status, "wrong content"),
        ),
    ],
)
def test_a_promise_that_was_broken_is_the_demos_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tamper, expected: str
) -> None:
    class Tampering(ServiceProcess):
        """A service that ends normally, but whose output is changed afterwards."""

        def stop(self) -> int:
            code = super().stop()
            if not tampered.exists():
                output = tmp_path / "run" / "demo-1" / "out" / "notifications.jsonl"
                output.write_bytes(b"".join(tamper(output.read_bytes().splitlines(keepends=True))))
                tampered.touch()
            return code

    tampered = tmp_path / "tampered"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "ServiceProcess", Tampering)
    assert main(["demo", "--units", "8", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert expected in shown
    assert "every promise was held" not in shown


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [(_double_the_first, "1 group report doubled"), *at_night("processes", (_drop_the_last, "1 group report missing"))],
)
def test_a_group_report_that_is_missing_or_doubled_is_the_demos_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tamper, expected: str
) -> None:
    class Tampering(ServiceProcess):
        def stop(self) -> int:
            code = super().stop()
            output = tmp_path / "run" / "demo-1" / "groups" / "payments" / "completions.jsonl"
            if output.exists() and not tampered.exists() and self._log.name == "groups.log":
                output.write_bytes(b"".join(tamper(output.read_bytes().splitlines(keepends=True))))
                tampered.touch()
            return code

    tampered = tmp_path / "tampered"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "ServiceProcess", Tampering)
    assert main(["demo", "--units", "14", "--seed", "1"]) == 1
    assert expected in capsys.readouterr().out


def test_a_service_that_ends_badly_fails_the_demo_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Killed(ServiceProcess):
        def stop(self) -> int:
            self._process.kill()
            return super().stop()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "ServiceProcess", Killed)
    assert main(["demo", "--units", "2", "--seed", "1"]) == 1
    assert "the service ended with -9; see run/demo-1/service.log" in capsys.readouterr().out


def test_a_service_that_cannot_start_fails_the_demo_with_its_last_words(tmp_path: Path) -> None:
    ended = _demo(tmp_path, "--units", "2", "--seed", "1", "--set", "payment-status-notification.target-type=nowhere:found")
    assert ended.returncode == 1
    assert "the service ended with 3:" in ended.stderr
    assert "'nowhere:found' cannot be imported" in ended.stderr
    assert "Traceback" not in ended.stderr
