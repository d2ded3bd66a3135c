"""`--set key=value …` at any place of the command line."""

import pytest

from notification_service.command_line import main
from notification_service.configuration.resolution import one_by_one
from notification_service.supervision.exit_code import ExitCode

PORT = "payment-status-notification.http.port"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("lookups --set a=1 build", "lookups --set a=1 build"),
        ("check --set a=1 b=2 c=3 --json", "check --set a=1 --set b=2 --set c=3 --json"),
        ("lookups --set a=1 b=2 list --set c=3", "lookups --set a=1 --set b=2 list --set c=3"),
        ("lookups --set a=1 show x y=z", "lookups --set a=1 show x y=z"),
        ("check --set --json", "check --set --json"),
        ("check --set a b=2", "check --set a --set b=2"),
        ("check --set=a=1 --rate=5", "check --set=a=1 --rate=5"),
    ],
)
def test_what_stands_behind_settings_is_none_unless_it_has_an_equals_sign(given, taken):
    assert [*one_by_one(given.split())] == taken.split()


@pytest.mark.parametrize("verb", ["lookups", "dead-letters"])
@pytest.mark.parametrize(
    "order", [("list", "--set", f"{PORT}=x"), ("--set", f"{PORT}=x", "list"), ("--set", "a=1", f"{PORT}=x", "list")]
)
def test_a_verb_takes_settings_before_its_order_and_behind_it(verb, order, capsys):
    assert main([verb, *order]) == ExitCode.CONFIGURATION_REFUSED
    assert f'{PORT}: "x" is refused' in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["check", "--set", "a"], ["lookups", "list", "--set", "a"], ["check", "--set", "=1"]])
def test_a_setting_without_a_key_and_an_equals_sign_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert "write key=value" in capsys.readouterr().err
