"""`resequencer dead-letters` as an operator types it, on files that the service wrote."""

import base64
import io
import json
import os
import pwd
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportUnavailable
from notification_service.command_line import main
from notification_service.configuration.resolution import find_shipped
from notification_service.connectors.files.dead_letters import ActionsFile
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, decode_line
from notification_service.supervision.locks import RunLock
from resequencer.record import Partition

NOTIFICATION = "payment-status-notification"
P0 = Partition("IPF_PROCESSING_DATA", 0)
USER = pwd.getpwuid(os.getuid()).pw_name
ENVELOPE = b'{"processingContext": {"unitOfWorkId": "uow-b"}, "sequence": 2}'


def name(number):
    return f"{P0}#{number}"


class DeadLetterStore:
    """The command in a directory with a service's files, without a running service."""

    def __init__(self, directory, capsys):
        run = directory / "run" / "application"
        self.settings = FileSettings(P0.topic, run / "in", run / "out")
        self.input = run / "in" / "partition-0.jsonl"
        self.out = run / "out"
        self._capsys = capsys
        self._number = 0

    def set_aside(self, value=ENVELOPE, key=b"uow-a", reason="handler-failed", at="2026-03-28T23:33:55.941Z", **errors):
        self._number += 1
        self.input.parent.mkdir(parents=True, exist_ok=True)
        if not self.input.exists():
            self.input.write_bytes(b'{"key":"old","value":{}}\n')
        ours = {
            "schema-version": "2",
            "dead-letter-reason": reason,
            "dead-letter-error": "it cannot be told",
            "dead-letter-source-position": f"{P0}@0",
            "dead-letter-at": at,
            **errors,
        }
        headers = tuple((each, text.encode()) for each, text in ours.items())
        transport = FileTransport(self.settings, lambda *_: None)
        letter = OutputRecord(self._number, Channel.DEAD_LETTERS, key, headers, value)
        transport.publish([PartitionOutput(P0, (letter,), Position(0, ""))])
        transport.close()
        return name(self._number)

    def __call__(self, *arguments):
        """Return the exit code, stdout and stderr."""
        code = main(["dead-letters", *arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *arguments):
        code, out, _ = self(*arguments, "--json")
        return code, json.loads(out)

    def requeued(self):
        return [line for line in self.input.read_bytes().splitlines() if b"requeued-from" in line]

    def states(self):
        return [each["state"] for each in self.json("list")[1]]


@pytest.fixture
def store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return DeadLetterStore(tmp_path, capsys)


# list


def test_each_dead_letter_is_a_line_with_what_can_be_known_of_it(store):
    store.set_aside()
    store.set_aside(b"no json", reason="undecodable", key=None)
    code, out, err = store("list")
    assert code == 0
    at = "2026-03-28T23:33:55.941Z"
    assert out.splitlines() == [
        f"{name(1)}  new  handler-failed  uow-b  {P0}@0  {at}  it cannot be told",
        f"{name(2)}  new  undecodable  -  {P0}@0  {at}  it cannot be told",
    ]
    assert err == "resequencer: 2 dead letters of run/application/out/dead-letters.jsonl\n"


def test_the_unit_is_the_one_in_the_body_or_the_key_where_that_cannot_be_read(store):
    for value in (
        ENVELOPE,
        b"no json",
        b'{"processingContext": 3}',
        b"{}",
        b"[" * 5000,
        b'{"processingContext": {"unitOfWorkId": "\xff"}}',
    ):
        store.set_aside(value)
    assert [each["unit"] for each in store.json("list")[1]] == ["uow-b", *["uow-a"] * 5]


def test_the_list_can_be_narrowed(store):
    store.set_aside()
    store.set_aside(b"x", reason="undecodable")
    store.set_aside(at="2026-03-29T00:00:00.000Z")
    store("discard", name(3), "--because", "why not")

    def numbers(*arguments):
        return [int(each["number"].partition("#")[2]) for each in store.json("list", *arguments)[1]]

    assert numbers("--reason", "undecodable") == [2]
    assert numbers("--unit", "uow-b") == [1, 3]
    assert numbers("--since", "2026-03-28T23:33:55.942") == [3]
    assert numbers("--since", "2026-03-29T01:00+01:00") == [3]
    assert numbers("--state", "discarded") == [3]
    assert numbers("--unit", "uow-b", "--state", "new") == [1]
    assert numbers("--unit", "unknown") == []


def test_nothing_set_aside_is_an_empty_list_and_makes_nothing(store, tmp_path):
    assert store("list")[:2] == (0, "")
    assert store.json("list") == (0, [])
    code, out, err = store("requeue", "--all")
    assert (code, out) == (1, "")
    assert err.startswith("resequencer: run/application/out: there is no such output directory, so there are no dead letters;")
    assert not (tmp_path / "run").exists()


def test_those_in_rotated_files_are_listed_shown_and_requeued_too(store):
    store.settings = msgspec.structs.replace(store.settings, rotate_bytes=1)
    numbers = [store.set_aside() for _ in range(3)]
    assert [each.number for each in find_rotated(store.out / "dead-letters.jsonl")] == [1, 2]
    code, listed = store.json("list")
    assert (code, [each["number"] for each in listed]) == (0, numbers)
    assert "not dead-letters" not in store("list")[2]
    assert store("show", name(1))[0] == 0
    assert store("requeue", "--all")[0] == 0
    assert len(store.requeued()) == 3


def test_files_that_were_moved_away_are_not_read_and_that_is_said(store):
    store.set_aside()
    (store.out / "dead-letters-2026-01.jsonl").write_bytes((store.out / "dead-letters.jsonl").read_bytes())
    store("requeue", "--all")
    code, out, err = store("list")
    assert (code, out.count("\n")) == (0, 1)
    assert "(only this file is read, not dead-letters-2026-01.jsonl)" in err
    code, out, _ = store("requeue", name(7))
    assert code == 1
    assert f"{name(7)}: refused: no dead letter has this number in run/application/out/dead-letters.jsonl (only this" in out


def test_what_would_steer_a_terminal_is_escaped(store):
    store.set_aside(b"{}", key=b"a\x1b[2Jb", **{"dead-letter-error": "two\nlines \u009b"})
    code, out, _ = store("list")
    assert code == 0
    assert out.count("\n") == 1
    assert r"a\x1b[2Jb" in out
    for arguments in (["show", name(1)], ["list", "--json"], ["show", name(1), "--json"]):
        assert not {"\x1b", "\x9b"} & set(store(*arguments)[1])


# show


def test_a_dead_letter_is_shown_with_its_headers_and_its_exact_value(store):
    store.set_aside(b'{ "a":  "\xc3\xa4",\n\t"b": 1}')
    code, out, _ = store("show", name(1))
    assert code == 0
    facts = {f"number: {name(1)}", "unit: uow-a", "state: new", "key: uow-a", "header dead-letter-reason: handler-failed"}
    assert facts <= set(out.splitlines())
    assert out.endswith('22 bytes:\n{ "a":  "ä",\n\t"b": 1}\n')


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"\xff\xfe", b"\x1b[2J", b"a\r\n", b"\xc2\x9b"])
def test_a_value_that_a_terminal_would_not_show_as_it_is_comes_in_base64(store, value):
    store.set_aside(value)
    out = store("show", name(1))[1]
    assert out.endswith(f"value, {len(value)} bytes, in base64:\n{base64.b64encode(value).decode()}\n")


def test_raw_is_the_bytes_and_nothing_else(store, monkeypatch):
    store.set_aside(b"\xff\x00\n")
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", stdout)
    assert main(["dead-letters", "show", name(1), "--raw"]) == 0
    assert stdout.buffer.getvalue() == b"\xff\x00\n"


def test_shown_as_json_everything_can_be_had_back(store):
    store.set_aside(b"\xff", key=b"\xfe")
    store("discard", name(1), "--because", "a test")
    code, shown = store.json("show", name(1))
    assert code == 0
    assert (base64.b64decode(shown["value_base64"]), base64.b64decode(shown["key_base64"])) == (b"\xff", b"\xfe")
    assert shown["headers"][0] == {"name": "schema-version", "value": "2"}
    assert [each["because"] for each in shown["actions"]] == ["a test"]
    assert shown["state"] == "discarded"


def test_an_unknown_number_is_said_and_ends_with_one(store):
    store.set_aside()
    code, _, err = store("show", "nonsense")
    assert (code, "nonsense: no dead letter has this number" in err) == (1, True)


# requeue


def test_a_requeued_one_says_where_it_is_now_and_is_listed_as_such(store):
    store.set_aside()
    assert store("requeue", name(1)) == (
        0,
        f"{name(1)}: requeued, now at {P0}@25\n",
        "resequencer: 1 requeued, 0 not; read run/application/out/dead-letters.jsonl\n",
    )
    assert store.states() == ["requeued"]
    assert "requeued at 20" in store("show", name(1))[1]
    assert f"by {USER}: {P0}@25\n" in store("show", name(1))[1]


def test_a_second_requeue_is_refused_unless_it_is_meant(store):
    store.set_aside()
    store("requeue", name(1))
    code, out, _ = store("requeue", name(1))
    assert code == 1
    assert out.startswith(f"{name(1)}: refused: it was requeued to {P0}@25 by {USER} at 20")
    assert out.endswith("; use --again to requeue it anyway\n")
    assert len(store.requeued()) == 1
    assert store("requeue", "--again", name(1))[0] == 0
    assert len(store.requeued()) == 2


def test_all_and_those_of_a_reason_mean_the_new_ones(store):
    store.set_aside()
    store.set_aside(b"x", reason="undecodable")
    store.set_aside()
    store("discard", name(3), "--because", "not wanted")
    assert store.json("requeue", "--reason", "undecodable") == (
        0,
        [{"number": name(2), "did": "requeued", "position": f"{P0}@25"}],
    )
    assert [each["number"] for each in store.json("requeue", "--all")[1]] == [name(1)]
    assert store.json("requeue", "--all") == (0, [])
    assert store.states() == ["requeued", "requeued", "discarded"]


def test_they_go_in_the_order_in_which_they_were_set_aside_and_each_once(store):
    for _ in range(3):
        store.set_aside()
    assert store("requeue", name(3), name(1), name(3))[0] == 0
    assert [json.loads(line)["headers"]["requeued-from"] for line in store.requeued()] == [name(1), name(3)]


def test_what_cannot_be_had_does_not_keep_the_rest_and_ends_with_one(store):
    store.set_aside()
    code, outcomes = store.json("requeue", name(9), name(1))
    assert code == 1
    assert [(each["number"], each.get("did")) for each in outcomes] == [(name(9), None), (name(1), "requeued")]


def test_a_cut_value_is_refused_with_where_the_whole_one_is(store):
    store.set_aside(b"x" * 10, reason="too-large", **{"dead-letter-value-length": "6000000", "dead-letter-value-sha256": "ab"})
    for arguments in ([name(1)], ["--all"], [name(1), "--again"]):
        code, out, _ = store("requeue", *arguments)
        assert code == 1
        assert out.startswith(
            f"{name(1)}: refused: only the first 10 of its 6000000 bytes are here, all of them in the input at {P0}@0"
        )
    assert "value, 10 bytes, the beginning of 6000000:\n" in store("show", name(1))[1]
    assert store("discard", name(1), "--because", "sent again, smaller")[0] == 0


@pytest.mark.parametrize("arguments", [[], ["--all", "--reason", "undecodable"], ["x", "--all"], ["--all", "--again"]])
def test_it_must_be_said_which_ones_in_one_way(store, arguments):
    store.set_aside()
    code, _, err = store("requeue", *arguments)
    assert (code, "--reason or --all (exactly one of these); --again needs numbers" in err) == (2, True)
    assert store.requeued() == []


def test_a_number_that_two_different_lines_have_is_refused_and_the_same_line_twice_is_one(store):
    store.set_aside()
    file = store.out / "dead-letters.jsonl"
    line = file.read_bytes()
    file.write_bytes(line + line.replace(b"uow-a", b"uow-c"))
    code, out, _ = store("requeue", name(1))
    assert (code, "refused: another dead letter has the same number" in out) == (1, True)
    file.write_bytes(line + line)
    assert store("requeue", name(1))[0] == 0
    assert len(store.requeued()) == 1


@pytest.mark.slow
def test_two_people_at_once_are_refused(store):
    store.set_aside()
    lock = RunLock(store.out, "dead-letters-actions.jsonl")
    lock.acquire()
    Path("value.json").write_bytes(MENDED)
    because = ["--because", "x"]
    for arguments in (["requeue", "--all"], ["edit", name(1), "--value", "value.json", *because], ["discard", name(1), *because]):
        code, _, err = store(*arguments)
        assert (code, "is running" in err) == (1, True)
    assert store("list")[0] == 0
    lock.release()
    assert store("requeue", "--all")[0] == 0


def test_it_goes_on_beside_a_service_and_without_one(store):
    store.set_aside()
    store.set_aside()
    service = RunLock(store.out)
    service.acquire()
    assert store("requeue", name(1))[0] == 0
    service.release()
    assert store("requeue", name(2))[0] == 0


def begin_and_crash(store, number):
    """Leave what a crash between the intent and the append leaves."""
    actions = store.out / "dead-letters-actions.jsonl"
    store("requeue", number)
    size = len(b"".join(store.requeued())) + 1
    store.input.write_bytes(store.input.read_bytes()[:-size])
    actions.write_bytes(actions.read_bytes().splitlines(keepends=True)[0])


@pytest.mark.parametrize(
    "arguments",
    [["requeue", name(1)], ["requeue", "--all"], ["requeue", "--again", name(1)], ["discard", name(2), "--because", "x"]],
)
def test_any_next_order_ends_what_a_crash_left_begun_once(store, arguments):
    store.set_aside()
    store.set_aside()
    begin_and_crash(store, name(1))
    assert store.states() == ["requeueing", "new"]
    assert store.requeued() == []
    code, out, _ = store(*arguments)
    assert code == 0
    assert f"{name(1)}: requeued, now at {P0}@25\n" in out
    assert len([line for line in store.requeued() if json.loads(line)["headers"]["requeued-from"] == name(1)]) == 1
    assert store.states()[0] == "requeued"


def test_what_was_begun_and_cannot_be_ended_can_be_discarded(store):
    store.set_aside()
    begin_and_crash(store, name(1))
    store.input.unlink()
    code, out, _ = store("requeue", "--all")
    assert (code, out.count("there is no such file any more. Put it back")) == (1, 1)
    store("discard", name(1), "--because", "that input is archived")
    assert store.states() == ["discarded"]
    assert store("requeue", "--all")[0] == 0


def test_a_torn_input_is_refused_with_the_remedy(store):
    store.set_aside()
    with store.input.open("ab") as file:
        file.write(b'{"key":')
    code, out, _ = store("requeue", name(1))
    assert code == 1
    assert (
        "partition-0.jsonl: its last line, up to byte 32, has no end; wait until its producer has written the whole line" in out
    )
    assert store.states() == ["new"]


# edit


FIRST = name(1)
BROKEN = b'{"processingContext": {"unitOfWorkId": "uow-b"}, "flow": "F", "sequence": "two"}'
MENDED = b'{"processingContext": {"unitOfWorkId": "uow-b"}, "flow": "F", "sequence": 2}'


def edit(store, value, *arguments, number=FIRST):
    Path("value.json").write_bytes(value)
    return store("edit", number, "--value", "value.json", "--because", "a typing error", *arguments)


def test_an_edited_one_is_in_the_input_with_its_new_bytes_and_says_by_whom_and_why(store):
    store.set_aside(BROKEN, reason="invalid-sequence")
    store.set_aside()
    before = (store.out / "dead-letters.jsonl").read_bytes()
    assert edit(store, MENDED) == (
        0,
        f"{name(1)}: edited, now at {P0}@25\n",
        "resequencer: 1 edited, 0 not; read run/application/out/dead-letters.jsonl\n",
    )
    (line,) = store.requeued()
    assert decode_line(line) == Line(MENDED, b"uow-a", (("schema-version", b"2"), ("requeued-from", name(1).encode())))
    assert (store.out / "dead-letters.jsonl").read_bytes() == before
    first, second = store("list")[1].splitlines()
    assert f"{name(1)}  edited  invalid-sequence" in first
    assert first.endswith("  because a typing error")
    assert f"  edited_by {USER}  edited_at 20" in first
    assert "edited" not in second
    listed, other = store.json("list", "--state", "edited")[1] + store.json("list", "--state", "new")[1]
    assert (listed["edited_by"], listed["because"], "edited_by" in other) == (USER, "a typing error", False)
    shown = store("show", name(1))[1]
    digests = f"SHA-256 {sha256(BROKEN).hexdigest()} to {sha256(MENDED).hexdigest()}"
    assert f"by {USER}: {P0}@25, {digests}: a typing error\n" in shown
    assert BROKEN.decode() in shown
    assert [each["action"] for each in store.json("show", name(1))[1]["actions"]] == ["editing", "edited"]


def test_the_bytes_that_show_prints_are_edited_through_the_standard_input(store, monkeypatch):
    store.set_aside(BROKEN)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MENDED + b"\r\n")))
    assert store.json("edit", name(1), "--value", "-", "--because", "x") == (
        0,
        [{"number": name(1), "did": "edited", "position": f"{P0}@25"}],
    )
    assert decode_line(store.requeued()[0]).value == MENDED + b"\r\n"


@pytest.mark.slow
def test_what_is_still_wrong_is_said_and_sent_only_if_it_is_meant(store):
    store.set_aside(BROKEN)
    for value, flaw in (
        (BROKEN + b" ", "it would be a dead letter again, invalid-sequence: sequence is '\"two\"'; send an integer"),
        (b"{", "it would be a dead letter again, undecodable: not an envelope: "),
        (MENDED.replace(b"uow-b", b"uow-c"), "it is of unit 'uow-c', the dead letter of 'uow-b' or 'uow-a'"),
    ):
        code, out, _ = edit(store, value)
        assert code == 1
        assert flaw in out, out
        assert out.endswith("; use --anyway to send it all the same\n")
    assert store.states() == ["new"]
    assert store.requeued() == []
    assert edit(store, b"{", "--anyway")[0] == 0
    assert decode_line(store.requeued()[0]).value == b"{"


@pytest.mark.parametrize("unit", ["uow-a", "uow-b"])
def test_the_unit_may_be_that_of_the_key_or_that_of_the_value(store, unit):
    store.set_aside(BROKEN)
    assert edit(store, MENDED.replace(b"uow-b", unit.encode()))[0] == 0


def test_a_letter_that_names_no_unit_may_be_of_any(store):
    store.set_aside(b"{", key=None, reason="undecodable")
    assert edit(store, MENDED)[0] == 0


def test_the_same_bytes_are_no_edit(store):
    store.set_aside(MENDED)
    for arguments in ([], ["--anyway"]):
        code, out, _ = edit(store, MENDED, *arguments)
        assert (code, "refused: the value is the same as before" in out) == (1, True)
    assert store.states() == ["new"]


def test_a_cut_value_can_be_replaced_whole(store):
    store.set_aside(b"x" * 10, reason="too-large", **{"dead-letter-value-length": "6000000", "dead-letter-value-sha256": "ab"})
    assert edit(store, MENDED.replace(b"uow-b", b"uow-a"))[0] == 0
    assert [each["original_sha256"] for each in store.json("show", name(1))[1]["actions"]] == ["ab", "ab"]


def test_a_value_beyond_the_limit_is_refused_with_the_sizes_even_if_it_is_meant(store):
    store.set_aside(BROKEN)
    limit = ["--set", "ipf.processing-data.ingress.max-record-bytes=1K"]
    code, out, _ = edit(store, MENDED + b" " * 1000, "--anyway", *limit)
    assert (code, store.requeued()) == (1, [])
    assert f"the edited value has {len(MENDED) + 1000} bytes, max-record-bytes is 1024" in out


@pytest.mark.slow
def test_what_was_edited_requeued_or_discarded_is_edited_and_requeued_again_only_if_it_is_meant(store):
    for _ in range(3):
        store.set_aside(BROKEN)
    edit(store, MENDED)
    store("requeue", name(2))
    store("discard", name(3), "--because", "no use")
    for number, past in ((1, f"edited to {P0}@25 because a typing error"), (2, "requeued to"), (3, "discarded because no use")):
        code, out, _ = edit(store, MENDED, number=name(number))
        assert code == 1
        assert out.startswith(f"{name(number)}: refused: it was {past}")
        assert out.endswith("; use --again to edit it anyway\n")
    assert f"refused: it was edited to {P0}@25 because a typing error by {USER} at 20" in store("requeue", name(1))[1]
    assert store("discard", name(1), "--because", "x")[0] == 1
    assert len(store.requeued()) == 2
    assert [edit(store, MENDED + b" ", "--again", number=name(number))[0] for number in (1, 2, 3)] == [0, 0, 0]
    assert store.states() == ["edited"] * 3
    assert len(store.requeued()) == 5


def edit_and_crash(store, value):
    """As a crash between the intent and the input leaves it."""
    actions = store.out / "dead-letters-actions.jsonl"
    edit(store, value)
    size = len(b"".join(store.requeued())) + 1
    store.input.write_bytes(store.input.read_bytes()[:-size])
    actions.write_bytes(actions.read_bytes().splitlines(keepends=True)[0])


@pytest.mark.parametrize("again", [[], ["--again"]])
def test_the_same_edit_again_completes_what_a_crash_interrupted_once(store, again):
    store.set_aside(BROKEN)
    edit_and_crash(store, MENDED)
    assert store.states() == ["editing"]
    assert edit(store, MENDED, *again)[:2] == (0, f"{name(1)}: edited, now at {P0}@25\n")
    assert [decode_line(line).value for line in store.requeued()] == [MENDED]


@pytest.mark.parametrize("begun", ["edited", "requeued"])
def test_an_edit_behind_an_interrupted_edit_or_requeue_completes_that_and_is_refused(store, begun):
    store.set_aside(BROKEN)
    edit_and_crash(store, MENDED) if begun == "edited" else begin_and_crash(store, name(1))
    code, out, _ = edit(store, MENDED + b" ")
    assert code == 1
    assert out.startswith(f"{name(1)}: {begun}, now at {P0}@25\n{name(1)}: refused: it was {begun} to {P0}@25")
    assert [decode_line(line).value for line in store.requeued()] == [MENDED if begun == "edited" else BROKEN]


def test_an_interrupted_edit_that_cannot_be_ended_says_so_once(store):
    store.set_aside(BROKEN)
    edit_and_crash(store, MENDED)
    content = store.input.read_bytes()
    store.input.unlink()
    code, out, _ = edit(store, MENDED)
    assert (code, out.count("\n"), out.count("there is no such file any more. Put it back")) == (1, 1, 1)
    store.input.write_bytes(content)
    assert store("requeue", "--all")[1] == f"{name(1)}: edited, now at {P0}@25\n"


def test_an_edit_of_nothing_is_refused(store):
    store.set_aside(BROKEN)
    code, out, _ = edit(store, MENDED, number=name(9))
    assert (code, "refused: no dead letter has this number" in out) == (1, True)
    code, _, err = store("edit", name(1), "--value", "nowhere", "--because", "x")
    assert (code, "nowhere cannot be read" in err) == (1, True)
    for missing in (["--because", "x"], ["--value", "-"], ["--value", "-", "--because", " "]):
        with pytest.raises(SystemExit) as ended:
            store("edit", name(1), *missing)
        assert ended.value.code == 2
    assert store.states() == ["new"]


# discard


def test_a_discarded_one_says_who_when_and_why_and_no_byte_is_deleted(store):
    store.set_aside()
    before = (store.out / "dead-letters.jsonl").read_bytes()
    assert store("discard", name(1), "--because", "settled by phone") == (
        0,
        f"{name(1)}: discarded\n",
        "resequencer: 1 done, 0 not; read run/application/out/dead-letters.jsonl\n",
    )
    assert (store.out / "dead-letters.jsonl").read_bytes() == before
    (action,) = store.json("show", name(1))[1]["actions"]
    assert (action["action"], action["by"], action["because"]) == ("discarded", USER, "settled by phone")
    assert action["at"].endswith("Z")
    assert store.requeued() == []


def test_a_discard_of_many_that_ends_half_way_keeps_what_was_done_and_the_same_command_does_the_rest(store, monkeypatch):
    monkeypatch.setattr("notification_service.connectors.dead_letters.decisions.MAX_AT_ONCE", 2)
    for _ in range(5):
        store.set_aside()
    numbers = [name(each) for each in range(1, 6)]
    written, append = [], ActionsFile.append

    def append_once(self, actions):
        if written:
            raise TransportUnavailable("the disk is full")
        written.extend(actions)
        append(self, actions)

    with monkeypatch.context() as patch:
        patch.setattr(ActionsFile, "append", append_once)
        assert store("discard", *numbers, "--because", "no use")[0] != 0
    code, out, _ = store("discard", *numbers, "--because", "no use")
    assert (code, out.count("refused: it was discarded because no use"), out.count(": discarded\n")) == (1, 2, 3)


@pytest.mark.parametrize("arguments", [[], ["--because", " "]])
def test_a_reason_must_be_given(store, arguments, capsys):
    store.set_aside()
    with pytest.raises(SystemExit) as ended:
        store("discard", name(1), *arguments)
    assert ended.value.code == 2


def test_what_was_discarded_is_requeued_only_if_it_is_meant_and_not_discarded_again(store):
    store.set_aside()
    store("discard", name(1), "--because", "no use")
    code, out, _ = store("requeue", name(1))
    assert (code, f"refused: it was discarded because no use by {USER} at " in out) == (1, True)
    assert store("discard", name(1), "--because", "no use")[0] == 1
    assert store("requeue", name(1), "--again")[0] == 0
    code, out, _ = store("discard", name(1), "--because", "no use")
    assert (code, "refused: it was requeued to" in out) == (1, True)


# The command line


def test_the_options_of_every_verb_may_stand_before_or_behind_the_order(store, tmp_path):
    store.set_aside()
    text = f"{NOTIFICATION} {{ transport = file, run-directory = run/application, resequencer.storage-type = embedded }}\n"
    (tmp_path / "other.conf").write_text(text + "ipf.processing-data.ingress.transport = file\n")
    for arguments in (["--config", "other.conf", "list", "--json"], ["--json", "list", "--config", "other.conf"]):
        code, out, _ = store(*arguments)
        assert (code, len(json.loads(out))) == (0, 1)
    other = ["--set", f"{NOTIFICATION}.run-directory=elsewhere"]
    assert store.json("list", *other) == (0, [])
    assert store("--json", *other, "--json", "list")[:2] == (0, "[\n]\n")
    assert store("list", "--set", f"{NOTIFICATION}.resequencer.stratgy=X")[0] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        ["list"],
        ["show", name(1)],
        ["requeue", "--all"],
        ["edit", name(1), "--value", os.devnull, "--because", "x"],
        ["discard", name(1), "--because", "x"],
    ],
)
def test_brokers_that_are_away_are_out_of_reach(store, order):
    ingress = "ipf.processing-data.ingress"
    clients = '{ bootstrap.servers = "127.0.0.1:1", default.api.timeout.ms = 1000 }'
    on_kafka = [
        f"{NOTIFICATION}.transport=kafka",
        f"{ingress}.transport=kafka",
        f"{ingress}.kafka.consumer.kafka-clients={clients}",
    ]
    code, out, err = store(*order, "--set", *on_kafka)
    assert (code, out) == (4, "")
    assert err.startswith("resequencer: the brokers at 127.0.0.1:1 (")


def test_an_edit_that_needs_a_second_person_is_proposed_and_sends_nothing(store):
    needs_two = tuple(
        part for key in ("http.approval=[edit]", "http.auth=basic") for part in ("--set", f"payment-status-notification.{key}")
    )
    store.set_aside(BROKEN, reason="invalid-sequence")
    code, printed, errors = edit(store, MENDED, *needs_two)
    assert (code, printed) == (0, f"{name(1)}: edit-proposed\n")
    assert "another person has to approve it in the console" in errors
    assert store.requeued() == []
    shown = store("show", name(1))[1]
    assert "state: edit-proposed\n" in shown
    assert f"by {USER}: a typing error\n" in shown
    assert edit(store, BROKEN, *needs_two)[0] == 1
    assert edit(store, MENDED)[0] == 0
    assert store.states() == ["edited"]


def test_a_value_of_other_events_that_is_not_text_is_edited_from_a_file_to_the_byte(store):
    store.set_aside(b"\x00\xffAvro", reason="no-sequence", key=b"\xfe")
    mapped = 'ipf.processing-data.ingress.events { format = mapped, mapped { unit = "header:order", id = position } }'
    service = "payment-status-notification { handler = pass-through, resequencer { strategy = WINDOW, order-by = sequence } }"
    settings = ["--set", mapped, service, 'ipf.processing-data.ingress.events.mapped.sequence = "header:n"']
    code, out, _ = edit(store, b"\x00\xff\r\nmended", *settings)
    assert (code, "it would be a dead letter again, no-unit-of-work: unit (header:order) is missing" in out) == (1, True)
    assert edit(store, b"\x00\xff\r\nmended", "--anyway", *settings)[0] == 0
    (line,) = store.requeued()
    assert (decode_line(line).value, decode_line(line).key) == (b"\x00\xff\r\nmended", b"\xfe")


MAPPED = """
ipf.processing-data.ingress.events { format = mapped, mapped.sequence = "PLACE" }
payment-status-notification { handler = pass-through, resequencer.strategy = SEQUENCE }
"""


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        (
            "header:version",
            "; edit changes the value alone, and sequence comes from header:version: append a corrected record to the input and "
            "discard this one\n",
        ),
        (
            "value:version",
            "; edit changes the value alone: if headers or key are wrong, append a corrected record and discard this one; use "
            "--anyway to send it all the same\n",
        ),
    ],
)
def test_a_flaw_in_a_header_is_no_matter_of_an_edit(store, place, remedy):
    of_files = find_shipped(Path("conf/application.conf")).read_text()
    Path("conf").mkdir()
    Path("conf/application.conf").write_text(of_files + MAPPED.replace("PLACE", place))
    store.set_aside(b"{}", reason="no-sequence")
    code, out, _ = edit(store, b'{"at": 1}')
    assert code == 1
    assert out.endswith(f"sequence ({place}) is missing; send it, or correct events.mapped.sequence{remedy}")


def test_proposed_edits_can_be_listed(store):
    store.set_aside()
    assert store.json("list", "--state", "edit-proposed") == (0, [])
