"""`resequencer groups` as an operator types it, on the values that a worker left in files. No service runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.payments.head import GroupState, Head, Message, encode_head
from notification_service.command_line import main

Groups = Callable[..., tuple[int, list[str], str]]
ENABLED = ("--set", "payment-status-notification.aggregation.enabled=true")


def head(message: str, began: int, total: int | None = 1, state: GroupState = GroupState.OPEN, who: str = "Muster") -> Stored:
    text = None if total is None else str(total)
    original = Message(message, "pain.001.001.09", None, text)
    made = Head(message=original, who=who, first_at=began, last_at=9_000 - began, total=total, members=2, state=state)
    return Stored(encode_head(made), began)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Groups:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "run" / "application" / "groups" / "payments"
    directory.mkdir(parents=True)
    values = ValuesFile(directory / "values.db", is_copy=False)
    with values.writing() as writing:
        writing.put(
            {
                Slot("KEYA"): head("MSG-1", 1_000, total=5),
                Slot("KEYB"): head("MSG-2", 3_000, total=None, who="Bäckerei"),
                Slot("KEYC"): head("MSG-2", 2_000, state=GroupState.COMPLETE),
            }
        )
    values.close()

    def run(*arguments: str) -> tuple[int, list[str], str]:
        code = main(["groups", *arguments, *ENABLED])
        printed, errors = capsys.readouterr()
        return code, printed.splitlines(), errors

    return run


def keys(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines]


def test_list_prints_the_newest_group_first(groups: Groups) -> None:
    code, lines, errors = groups("list")
    assert (code, keys(lines), errors) == (0, ["KEYB", "KEYC", "KEYA"], "resequencer: 3 groups\n")
    code, lines, errors = groups("list", "--limit", "1")
    assert (keys(lines), errors) == (["KEYB"], "resequencer: 3 groups, the 1 newest are shown (--limit)\n")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--state", "complete"), ["KEYC"]),
        (("--text", "msg-2"), ["KEYB", "KEYC"]),
        (("--text", "BÄCKEREI"), ["KEYB"]),
        (("--text", "keya"), ["KEYA"]),
        (("--problems",), ["KEYB"]),
        (("--problems", "--state", "complete"), []),
    ],
)
def test_list_prints_what_is_wanted(groups: Groups, options: tuple[str, ...], found: list[str]) -> None:
    assert keys(groups("list", *options)[1]) == found


def test_show_finds_a_group_by_its_key_and_by_the_id_of_its_message(groups: Groups) -> None:
    for wanted in ("KEYA", "MSG-1"):
        code, lines, _ = groups("show", wanted, "--json")
        assert (code, json.loads(lines[0])["key"]) == (0, "KEYA")


def test_an_id_that_several_senders_have_used_is_refused_with_the_keys(groups: Groups) -> None:
    code, lines, errors = groups("show", "MSG-2")
    assert (code, lines) == (1, [])
    assert "2 groups have the message id MSG-2; give the key of one: KEYB of Bäckerei, KEYC of Muster" in errors


@pytest.mark.parametrize("subcommand", [("show",), ("close", "--because", "a test")])
def test_an_id_that_no_group_has_is_refused(groups: Groups, subcommand: tuple[str, ...]) -> None:
    code, _, errors = groups(*subcommand, "MSG-3")
    assert code == 1
    assert "no group has the key or the message id MSG-3; `resequencer groups list` lists the groups" in errors


def test_a_group_that_a_later_version_wrote_hides_no_other(groups: Groups, tmp_path: Path) -> None:
    values = ValuesFile(tmp_path / "run" / "application" / "groups" / "payments" / "values.db", is_copy=False)
    with values.writing() as writing:
        writing.put({Slot("KEYD"): Stored(b"{later", 1)})
    values.close()
    code, lines, errors = groups("list")
    assert (code, keys(lines)) == (0, ["KEYB", "KEYC", "KEYA"])
    assert errors == "resequencer: 3 groups; 1 group that a later version wrote cannot be read\n"
    assert (groups("show", "MSG-1")[0], main(["find", "MSG-1", *ENABLED])) == (0, 0)
    assert "a later version wrote them" in groups("show", "KEYD")[2]
