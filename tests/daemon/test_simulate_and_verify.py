"""`resequencer simulate` and `verify`, without a service: what nobody worked on is lost, and that is said."""

import json

import pytest

from daemon.command_line import main
from daemon.exit_code import ExitCode

N = "payment-status-notification"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty working directory; the default configuration's run directory is run/application/."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run" / "application"


def simulate(*arguments):
    return main(["simulate", "--units", "5", "--late", "0", *arguments])


def test_what_was_simulated_is_said_with_its_seed(directory, capsys):
    assert simulate("--seed", "3") == 0
    said = capsys.readouterr().out
    assert said.startswith("seed 3: ")
    assert " of 5 units: " in said
    lines = (directory / "in" / "partition-0.jsonl").read_bytes().count(b"\n")
    assert f"seed 3: {lines} lines of" in said
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
        (("--set", f"{N}.resequencer.storage-type=redis"), ExitCode.CONFIGURATION_REFUSED),
        (("--pain001", "nowhere.xml"), ExitCode.NOT_SO),
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
