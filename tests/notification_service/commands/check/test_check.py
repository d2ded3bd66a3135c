"""`resequencer check` as an operator sees it."""

import json
from pathlib import Path

import pytest

from notification_service.command_line import main
from notification_service.commands import check as command
from notification_service.commands import check as preflight
from notification_service.configuration.configuration import load
from resequencer.errors import ConfigurationError, ResequencerError, TransientError

R = "payment-status-notification.resequencer"
STRATGY = f"{R}.stratgy=SEQUENCE"


def test_a_mistyped_key_ends_with_three_and_names_the_right_one(capsys):
    assert main(["check", "--set", STRATGY]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("resequencer: payment-status-notification.resequencer.stratgy: unknown key")
    assert err.rstrip().endswith("payment-status-notification.resequencer.strategy")
    assert err.count("\n") == 1


def test_a_distribution_that_has_a_package_of_ours_is_named(tmp_path, monkeypatch, capsys):
    described = tmp_path / "django_guardian-3.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: django-guardian\nVersion: 3.0\n")
    (described / "top_level.txt").write_text("guardian\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check"]) == 3
    assert capsys.readouterr().err.startswith(
        "resequencer: package guardian: django-guardian installs a package of this name, too"
    )


def test_each_problem_has_a_line(capsys):
    assert main(["check", "--set", STRATGY, "payment-status-notification.http.port=x"]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_refusals_are_json_too(capsys):
    assert main(["check", "--json", "--set", STRATGY]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert report["problems"][0]["path"] == "payment-status-notification.resequencer.stratgy"


def test_the_effective_configuration_is_hocon_with_the_layer_of_what_was_changed(write, capsys, monkeypatch):
    monkeypatch.setenv("PORT", "9999")
    file = write(
        "payment-status-notification { http.port = ${?PORT}, resequencer { idle-timeout = 40s }\n"
        'storage.infinispan { username = app, password = s3cret }, storage.redis.url = "redis://:s3cret@host/0" }'
    )
    assert main(["check", "--config", str(file), "--set", "payment-status-notification.logging.level=debug"]) == 0
    out = capsys.readouterr().out
    assert "payment-status-notification.http.port = 9999  # environment (PORT)\n" in out
    assert f"payment-status-notification.resequencer.idle-timeout = 40s  # file {file}:1\n" in out
    assert "payment-status-notification.logging.level = debug  # --set\n" in out
    assert "payment-status-notification.resequencer.max-attempts = 3\n" in out
    assert "s3cret" not in out
    again = load(write(out, "again.conf"))
    assert again.http.port == 9999


def test_json_holds_every_key_with_its_layer(capsys):
    assert main(["check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is True
    assert report["keys"]["payment-status-notification.resequencer.strategy"] == {
        "value": "SEQUENCE",
        "layer": "file conf/application.conf",
        "place": "conf/application.conf:11",
    }


def test_changed_values_alone_are_shown_with_the_included_file_and_the_line(write, capsys):
    shared = write(f"\n{R} {{\n  max-attempts = 4\n}}\n", "shared/limits.conf")
    file = write(f'include "shared/limits.conf"\n\n{R}.idle-timeout = 40s\n')
    assert main(["check", "--changed", "--config", str(file), "--set", f"{R}.max-attempts=5"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"# {file} is valid.")
    assert [each for each in lines if not each.startswith("# note: ")] == [
        f"{R}.max-attempts = 5  # --set",
        f"{R}.idle-timeout = 40s  # file {file}:3",
    ]
    assert main(["check", "--changed", "--json", "--config", str(file)]) == 0
    keys = json.loads(capsys.readouterr().out)["keys"]
    assert {path: each["place"] for path, each in keys.items()} == {
        f"{R}.idle-timeout": f"{file}:3",
        f"{R}.max-attempts": f"{shared}:3",
    }


def test_notes_come_before_the_values(write, capsys):
    files = "ipf.processing-data.ingress.transport = file\npayment-status-notification.transport = file\n"
    assert main(["check", "--config", str(write(f"{files}{R}.storage-type = none"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    notes = [number for number, each in enumerate(lines) if each.startswith("# note: ")]
    assert notes == list(range(1, 1 + len(notes)))
    assert notes


def test_a_refused_value_names_its_file_and_line(write, capsys):
    shared = write(f"\n{R}.max-attempts = many", "shared/limits.conf")
    file = write('include "shared/limits.conf"')
    assert main(["check", "--json", "--config", str(file)]) == 3
    out, err = capsys.readouterr()
    assert err.startswith(f"resequencer: {R}.max-attempts: ")
    assert err.endswith(f" ({shared}:2)\n")
    (problem,) = json.loads(out)["problems"]
    assert (problem["path"], problem["place"]) == (f"{R}.max-attempts", f"{shared}:2")


def test_connect_tells_what_is_out_of_reach(write, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").touch()
    file = write(
        f"""ipf.processing-data.ingress.transport = file
        payment-status-notification {{
          transport = file, run-directory = "{tmp_path}/file/run", resequencer.storage-type = embedded }}"""
    )
    assert main(["check", "--connect", "--config", str(file)]) == 4
    assert f"{tmp_path}/file/run cannot be used" in capsys.readouterr().err
    monkeypatch.setattr(preflight, "PROBES", [_away])
    assert main(["check", "--connect"]) == 4
    assert capsys.readouterr().err == "resequencer: the database is away\n"
    assert main(["check"]) == 0


def test_connect_writes_nothing(write, tmp_path):
    file = write(
        f"""ipf.processing-data.ingress.transport = file
        payment-status-notification {{
          transport = file, run-directory = "{tmp_path}/new/run", resequencer.storage-type = embedded }}"""
    )
    assert main(["check", "--connect", "--config", str(file)]) == 0
    assert not (tmp_path / "new").exists()


def _away(_configuration):
    raise TransientError("the database is away")


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigurationError("key", "is wrong"), 3), (TransientError("is away"), 4), (ResequencerError("is damaged"), 1)],
)
def test_an_error_is_a_line_and_an_exit_code(capsys, monkeypatch, error, code):
    def fails(_arguments):
        raise error

    monkeypatch.setattr(command, "check", fails)
    assert main(["check"]) == code
    assert capsys.readouterr().err == f"resequencer: {error}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["chek"], ["check", "--set", "no-value"], ["check", "--set", "=1"], ["check", "--sett", "a=1"]]
)
def test_wrong_usage_ends_with_two(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_without_a_conf_directory_the_installed_files_are_used(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--connect"]) == 0
    assert "strategy = SEQUENCE" in capsys.readouterr().out


def test_a_file_in_the_working_directory_goes_before_the_installed_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("conf").mkdir()
    Path("conf/application.conf").write_text("payment-status-notification.http.port = 1", encoding="utf-8")
    assert main(["check"]) == 0
    assert "http.port = 1  # file conf/application.conf" in capsys.readouterr().out
    assert main(["check", "--config", "conf/other.conf"]) == 3
