"""A dead letter returns to its input once, after any failure at any time: each operation fails in every possible way."""

import errno
import itertools
import json
from hashlib import sha256

import msgspec
import pytest

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportRefused, TransportUnavailable
from notification_service.connectors.dead_letters import port as requeue_batches
from notification_service.connectors.dead_letters.actions import Edit, Edited, Editing, Requeued, Requeueing
from notification_service.connectors.dead_letters.port import Outcome, Signature
from notification_service.connectors.files.dead_letters import ActionsFile, DeadLettersFile
from notification_service.connectors.files.line_reader import FoundLine
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.requeue import Requeue
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, decode_line, encode_line
from resequencer.record import Partition

P0, P1 = Partition("T", 0), Partition("T", 1)
FRESH = b'{"key":"k","value":{"fresh":true}}\n'
EDITS = {"T-0#2": Edit(b'{"two":\n 2}', "a typing error"), "T-1#1": Edit(b"\xff" * 60, "the end was missing")}


def letter(number, partition=P0, value=b'{"a": 1}', key=b"uow-1", headers=(("schema-version", b"2"),), **more):
    ours = {
        "dead-letter-reason": "handler-failed",
        "dead-letter-error": "no",
        "dead-letter-source-position": f"{partition}@0",
        "dead-letter-at": "2026-03-28T23:33:55.941Z",
        **more,
    }
    return OutputRecord(
        number, Channel.DEAD_LETTERS, key, (*headers, *((name, text.encode()) for name, text in ours.items())), value
    )


def set_aside(settings, *letters, partition=P0):
    """Write dead letters as the service does, with an input from which they came."""
    settings.in_directory.mkdir(exist_ok=True)
    path = settings.in_directory / f"partition-{partition.number}.jsonl"
    if not path.exists():
        path.write_bytes(b'{"key":"old","value":{}}\n')
    transport = FileTransport(settings, lambda *_: None)
    transport.publish([PartitionOutput(partition, letters, Position(0, ""))])
    transport.close()


def input_lines(settings, partition=P0):
    data = (settings.in_directory / f"partition-{partition.number}.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return data.split(b"\n")[:-1]


def records(settings, partition=P0):
    """Return the records that were requeued to the input, as the source reads them."""
    read = [decode_line(line) for line in input_lines(settings, partition)]
    assert all(isinstance(each, Line) for each in read), read
    return [each for each in read if any(name == "requeued-from" for name, _ in each.headers)]


class DeadLetterStore:
    """One call of the verb: what a crash left is ended, then what nothing was done with is requeued.

    The letters with a number in `edits` are edited instead.
    """

    def __init__(self, settings, files=None, edits=None, by="anna"):
        files = files or SystemFiles()
        self.edits = edits or {}
        self.letters = DeadLettersFile(settings.out_directory, files)
        self.actions = ActionsFile(settings.out_directory, files)
        self.requeue = Requeue(settings, self.letters, self.actions, files, lambda: Signature(by, "now"))

    def resume(self):
        return list(self.requeue.resume())

    def all_new(self):
        last = self.actions.last()
        new = (each for each in self.letters.letters() if each.letter_id not in last)
        return list(self.requeue.requeue(self._edited(each) for each in new))

    def _edited(self, letter):
        return letter.edited(self.edits[letter.number]) if letter.number in self.edits else letter

    def call(self):
        try:
            return self.resume() + self.all_new()
        finally:
            self.actions.close()

    def named(self, number):
        found = [each for each in self.letters.letters() if each.number == number]
        return list(self.requeue.requeue(found))


@pytest.fixture(params=[{}, EDITS], ids=["as they were", "edited"])
def edits(request):
    return request.param


def test_the_original_record_comes_back_exactly_with_the_number_it_was_requeued_from(settings):
    value = b'{"s": "\xc3\xa4", "b":  [1,\t2] }'
    headers = (("schema-version", b"2"), ("twice", b"1"), ("twice", b"\xff"))
    set_aside(settings, letter(1, value=value, headers=headers))
    (outcome,) = DeadLetterStore(settings).call()
    assert outcome == Outcome("T-0#1", "T-0@25")
    (record,) = records(settings)
    assert record == Line(value, b"uow-1", (*headers, ("requeued-from", b"T-0#1")))


@pytest.mark.parametrize("value", [b"", b"no json", b"\xff\x00", b'"text"', b"{\n}", b"[" * 5000, b"\x01" * 100])
@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_any_bytes_come_back_exactly(settings, value, key):
    set_aside(settings, letter(1, value=value, key=key, headers=()))
    DeadLetterStore(settings).call()
    assert records(settings) == [Line(value, key, (("requeued-from", b"T-0#1"),))]


def test_only_our_headers_go_even_where_the_record_had_some_of_their_names(settings):
    """The record may be an older dead letter that was appended by hand, with the headers of its first time."""
    headers = (("dead-letter-reason", b"undecodable"), ("dead-letter-value-length", b"9"), ("requeued-from", b"T-0#7"))
    set_aside(settings, letter(8, headers=headers))
    (stored,) = DeadLetterStore(settings).letters.letters()
    assert stored.letter.reason == "handler-failed"
    assert stored.letter.record.cut is None
    DeadLetterStore(settings).call()
    assert records(settings)[0].headers == (*headers[:2], ("requeued-from", b"T-0#8"))


def test_a_mark_behind_our_headers_goes_along_as_long_as_the_dead_letter_has_it(settings):
    requeued = ("requeued-possible-duplicate", b"true")
    set_aside(settings, letter(1, **{"possible-duplicate": "true"}), letter(2, headers=(requeued,)))
    set_aside(settings, letter(3, headers=(("possible-duplicate", b"true"),)))
    DeadLetterStore(settings).call()
    assert [each.headers[:-1] for each in records(settings)] == [
        (("schema-version", b"2"), requeued),
        (),
        (("possible-duplicate", b"true"),),
    ]


def test_each_goes_to_the_partition_that_it_came_from_in_the_order_in_which_it_was_set_aside(settings):
    set_aside(settings, *(letter(number, value=b"%d" % number) for number in (1, 2, 3)))
    set_aside(settings, letter(1, P1, value=b"p1"), partition=P1)
    assert len(DeadLetterStore(settings).call()) == 4
    assert [each.value for each in records(settings)] == [b"1", b"2", b"3"]
    assert [each.value for each in records(settings, P1)] == [b"p1"]


def test_many_go_in_portions_each_once(settings, monkeypatch):
    monkeypatch.setattr(requeue_batches, "MAX_AT_ONCE", 7)
    set_aside(settings, *(letter(number) for number in range(1, 51)))
    assert [each.number for each in DeadLetterStore(settings).call()] == [f"T-0#{number}" for number in range(1, 51)]
    assert len(records(settings)) == 50
    kinds = [type(action) for action in DeadLetterStore(settings).actions.read()]
    assert kinds[:14] == [Requeueing] * 7 + [Requeued] * 7
    assert DeadLetterStore(settings).call() == []


def test_what_was_recorded_says_who_when_and_where(settings):
    set_aside(settings, letter(1))
    DeadLetterStore(settings).call()
    lines = (settings.out_directory / "dead-letters-actions.jsonl").read_bytes().splitlines()
    first, second = map(json.loads, lines)
    both = {"number": "T-0#1", "letter": first["letter"], "by": "anna", "at": "now"}
    assert first == {"action": "requeueing", **both, "partition": 0, "beyond": 25}
    assert second == {"action": "requeued", **both, "position": "T-0@25"}


def test_the_same_number_of_another_letter_is_another_letter(settings):
    """If all state was lost and the outputs were moved away, numbers begin again, while the file of actions may have stayed."""
    set_aside(settings, letter(1, value=b"one"))
    DeadLetterStore(settings).call()
    for name in ("dead-letters.jsonl", "positions.json"):
        (settings.out_directory / name).unlink()
    set_aside(settings, letter(1, value=b"other"))
    DeadLetterStore(settings).call()
    assert [each.value for each in records(settings)] == [b"one", b"other"]


# What is edited


def test_an_edited_record_has_its_new_value_and_its_old_key_and_headers(settings):
    headers = (("schema-version", b"2"), ("twice", b"1"), ("twice", b"\xff"))
    set_aside(settings, letter(1, value=b'{"a": 1', headers=headers))
    before = (settings.out_directory / "dead-letters.jsonl").read_bytes()
    edit = Edit(b'{\n  "a": 1\n}\n', "the end was missing")
    assert DeadLetterStore(settings, edits={"T-0#1": edit}).call() == [Outcome("T-0#1", "T-0@25", done="edited")]
    assert records(settings) == [Line(edit.value, b"uow-1", (*headers, ("requeued-from", b"T-0#1")))]
    assert (settings.out_directory / "dead-letters.jsonl").read_bytes() == before


def test_what_was_recorded_of_an_edit_says_who_when_why_and_which_bytes(settings):
    set_aside(settings, letter(1, value=b"bad"))
    DeadLetterStore(settings, edits={"T-0#1": Edit(b"good", "the end was missing")}).call()
    first, second = map(json.loads, (settings.out_directory / "dead-letters-actions.jsonl").read_bytes().splitlines())
    both = {
        "number": "T-0#1",
        "letter": first["letter"],
        "by": "anna",
        "at": "now",
        "because": "the end was missing",
        "original_sha256": sha256(b"bad").hexdigest(),
    }
    assert first == {"action": "editing", **both, "partition": 0, "beyond": 25, "value_base64": "Z29vZA=="}
    assert second == {"action": "edited", **both, "position": "T-0@25", "edited_sha256": sha256(b"good").hexdigest()}


def test_of_a_cut_value_the_edit_has_all_and_the_digest_of_the_whole_one_is_kept(settings):
    whole = {"dead-letter-value-length": "6000000", "dead-letter-value-sha256": "ab" * 32}
    set_aside(settings, letter(1, value=b"beginning", **whole))
    store = DeadLetterStore(settings, edits={"T-0#1": Edit(b"all of it", "shortened")})
    store.call()
    assert [each.value for each in records(settings)] == [b"all of it"]
    assert store.actions.last().popitem()[1].original_sha256 == "ab" * 32


def test_an_edit_that_a_crash_interrupted_is_completed_with_its_value_in_the_name_of_the_person_who_made_it(
    settings, new_files, crash
):
    set_aside(settings, letter(1))
    edits = {"T-0#1": Edit(b"good", "why")}
    fault_at = 0
    while [type(each) for each in DeadLetterStore(settings).actions.read()] != [Editing]:
        fault_at += 1
        files = new_files()
        files.fault_at = fault_at
        with pytest.raises(crash):
            DeadLetterStore(settings, files, edits).all_new()
    assert records(settings) == []
    assert DeadLetterStore(settings, by="berta").resume() == [Outcome("T-0#1", "T-0@25", done="edited")]
    (edited,) = DeadLetterStore(settings).actions.last().values()
    assert isinstance(edited, Edited)
    assert (edited.by, edited.because, edited.edited_sha256) == ("anna", "why", sha256(b"good").hexdigest())
    assert [each.value for each in records(settings)] == [b"good"]


def test_an_edited_value_beyond_the_limit_is_refused_with_the_sizes_and_the_others_go(settings):
    settings = msgspec.structs.replace(settings, max_value_bytes=10)
    set_aside(settings, letter(1), letter(2))
    refused, done = DeadLetterStore(settings, edits={"T-0#1": Edit(b"x" * 11, "why"), "T-0#2": Edit(b"x" * 10, "why")}).call()
    assert refused.problem == "the edited value has 11 bytes, max-record-bytes is 10; make it smaller, or raise the limit"
    assert (done.number, done.position) == ("T-0#2", "T-0@25")
    assert {each.number for each in DeadLetterStore(settings).actions.read()} == {"T-0#2"}


# What is refused


def test_an_input_that_is_gone_is_never_made_anew(settings):
    set_aside(settings, letter(1))
    (settings.in_directory / "partition-0.jsonl").unlink()
    (outcome,) = DeadLetterStore(settings).call()
    assert "partition-0.jsonl: there is no such file any more. Put it back" in outcome.problem
    assert not list(settings.in_directory.iterdir())
    assert list(DeadLetterStore(settings).actions.read()) == []


def test_a_torn_last_line_of_a_producer_is_refused_with_the_remedy_and_left_alone(settings):
    set_aside(settings, letter(1))
    set_aside(settings, letter(1, P1), partition=P1)
    path = settings.in_directory / "partition-0.jsonl"
    torn = path.read_bytes() + b'{"key":'
    path.write_bytes(torn)
    refused, done = DeadLetterStore(settings).call()
    assert (refused.number, refused.position) == ("T-0#1", None)
    assert "its last line, up to byte 32, has no end; wait until its producer has written the whole line" in refused.problem
    assert done.position == "T-1@25"
    assert path.read_bytes() == torn
    assert [action.number for action in DeadLetterStore(settings).actions.read()] == ["T-1#1", "T-1#1"]


def from_nowhere(place):
    """Return the headers of a dead letter with an invalid source position."""
    return letter(9, **{"dead-letter-source-position": place}).headers


def test_a_line_that_is_no_dead_letter_is_passed_over_and_said_once(settings, caplog):
    set_aside(settings, letter(1))
    path = settings.out_directory / "dead-letters.jsonl"
    strange = [
        b"no json",
        b'{"value": "no number"}',
        b'{"number": "T-0#9", "value": "no headers"}',
        encode_line(Line(b"v", None, letter(9).headers[:2]), number="T-0#9")[:-1],
        encode_line(Line(b"v", None, (("dead-letter-reason", b"unheard-of"),)), number="T-0#9")[:-1],
        *(encode_line(Line(b"v", None, from_nowhere(place)), number="T-0#9")[:-1] for place in ("T@1", f"T-{'9' * 300}@0")),
    ]
    path.write_bytes(b"\n".join(strange) + b"\n" + path.read_bytes() + b'{"torn')
    letters = DeadLettersFile(settings.out_directory, SystemFiles())
    assert [each.number for each in letters.letters()] == [each.number for each in letters.letters()] == ["T-0#1"]
    assert [text.partition("no dead letter")[1] for text in caplog.messages] == ["no dead letter"] * 7


def test_a_line_too_long_to_hold_is_no_dead_letter(settings, monkeypatch, caplog):
    set_aside(settings, letter(1))
    monkeypatch.setattr("notification_service.connectors.files.scan.LONGEST_LINE_BYTES", 20)
    assert list(DeadLettersFile(settings.out_directory, SystemFiles()).letters()) == []
    assert "bytes" in caplog.text
    assert FoundLine(0, b"").cut is None


BEGUN = b'{"action":"requeueing","number":"T-0#1","letter":"x","by":"me","at":"now",%b}\n'


@pytest.mark.parametrize(
    "edited", [b'{"action":"eaten"}\n', BEGUN % b'"partition":-1,"beyond":0', BEGUN % b'"partition":%b,"beyond":0' % (b"9" * 300)]
)
def test_a_record_of_actions_that_was_edited_is_refused(settings, edited):
    set_aside(settings, letter(1))
    DeadLetterStore(settings).call()
    path = settings.out_directory / "dead-letters-actions.jsonl"
    path.write_bytes(edited + path.read_bytes())
    with pytest.raises(TransportRefused, match=r"actions.jsonl: the line at byte 0 is not an action .* Restore the file"):
        DeadLetterStore(settings).call()


# Crashes and failures


def append(settings, data, partition=P0):
    with (settings.in_directory / f"partition-{partition.number}.jsonl").open("ab") as file:
        file.write(data)


def prepare(settings, files=None):
    """Make three new dead letters of two partitions; existing files are on the disk."""
    for directory in (settings.in_directory, settings.out_directory):
        for path in directory.glob("*") if directory.exists() else ():
            path.unlink()
    set_aside(settings, letter(1, value=b"one"), letter(2, value=b"two"))
    set_aside(settings, letter(1, P1, value=b"three"), partition=P1)
    if files:
        for path in (*settings.in_directory.glob("*"), *settings.out_directory.glob("*")):
            files.note_durable(path)


def check(settings, edits):
    wanted = {"T-0#1": b"one", "T-0#2": b"two", "T-1#1": b"three"} | {number: edit.value for number, edit in edits.items()}
    assert [each.value for each in (*records(settings), *records(settings, P1))] == [*wanted.values()]
    assert {each.key for each in records(settings)} == {b"uow-1"}
    done = list(DeadLetterStore(settings).actions.last().values())
    assert sorted(each.number for each in done if isinstance(each, Requeued)) == ["T-0#1", "T-0#2", "T-1#1"]
    assert {each.number for each in done if isinstance(each, Edited)} == edits.keys()
    for each in done:
        line = (settings.in_directory / f"partition-{each.number[2]}.jsonl").read_bytes()[int(each.position.partition("@")[2]) :]
        assert dict(decode_line(line.partition(b"\n")[0]).headers)["requeued-from"].decode() == each.number
    assert DeadLetterStore(settings).call() == []


@pytest.fixture
def operations(settings, new_files, edits):
    """The number of operations of a call without faults."""
    files = new_files()
    prepare(settings, files)
    DeadLetterStore(settings, files, edits).call()
    check(settings, edits)
    return files.count


TORN = [0, 1, 50, 130]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("meanwhile", [b"", FRESH])
def test_a_crash_at_any_operation_loses_nothing_and_doubles_nothing(
    settings, new_files, crash, operations, torn, meanwhile, edits
):
    for fault_at in range(1, operations + 1):
        files = new_files()
        prepare(settings, files)
        files.fault_at, files.torn = fault_at, torn
        with pytest.raises(crash):
            DeadLetterStore(settings, files, edits).call()
        if meanwhile and all((settings.in_directory / f"partition-{n}.jsonl").read_bytes().endswith(b"\n") for n in (0, 1)):
            append(settings, meanwhile)
            append(settings, meanwhile, P1)
        DeadLetterStore(settings, edits=edits).call()
        check(settings, edits)


@pytest.mark.slow
def test_a_crash_while_a_crash_is_mended_loses_nothing_and_doubles_nothing(settings, new_files, crash, operations, edits):
    for first, second in itertools.product(range(1, operations + 1), range(1, 13)):
        prepare(settings)
        for fault_at in (first, second):
            files = new_files()
            files.fault_at, files.torn = fault_at, 70
            try:
                DeadLetterStore(settings, files, edits).call()
            except crash:
                continue
        DeadLetterStore(settings, edits=edits).call()
        check(settings, edits)


@pytest.mark.parametrize("torn", TORN)
def test_a_power_cut_at_any_operation_loses_nothing_and_doubles_nothing(settings, new_files, crash, operations, torn, edits):
    for fault_at in range(1, operations + 1):
        files = new_files()
        prepare(settings, files)
        files.fault_at, files.torn = fault_at, torn
        with pytest.raises(crash):
            DeadLetterStore(settings, files, edits).call()
        files.cut_power(names_are_lost=False)
        DeadLetterStore(settings, edits=edits).call()
        check(settings, edits)


def test_a_power_cut_that_takes_what_a_producer_wrote_last_is_no_reason_to_refuse(settings, new_files, crash, operations, edits):
    """The length in an intent must be one that the file keeps."""
    for fault_at in range(1, operations + 1):
        files = new_files()
        prepare(settings, files)
        append(settings, FRESH)
        files.fault_at = fault_at
        with pytest.raises(crash):
            DeadLetterStore(settings, files, edits).call()
        files.cut_power(names_are_lost=False)
        DeadLetterStore(settings, edits=edits).call()
        check(settings, edits)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("torn", TORN)
def test_the_same_call_again_after_any_failure_loses_nothing_and_doubles_nothing(
    settings, new_files, operations, torn, number, edits
):
    for fault_at in range(1, operations + 1):
        files = new_files()
        prepare(settings, files)
        files.fault_at, files.torn, files.fault = fault_at, torn, lambda: OSError(number, "struck")
        with pytest.raises(TransportUnavailable, match=f"{errno.errorcode[number]}: struck"):
            DeadLetterStore(settings, files, edits).call()
        DeadLetterStore(settings, edits=edits).call()
        check(settings, edits)


def test_a_producer_that_appends_at_every_moment_disturbs_no_requeue(settings, new_files):
    class Busy(new_files):
        def produce(self):
            append(settings, FRESH)
            self.produced += 1

        produced = 0

        def open(self, path, flags):
            self.produce()
            return super().open(path, flags)

        def read(self, descriptor, size, offset):
            self.produce()
            return super().read(descriptor, size, offset)

        def write(self, descriptor, data):
            self.produce()
            return super().write(descriptor, data)

        def fsync(self, descriptor):
            self.produce()
            super().fsync(descriptor)

    files = Busy()
    prepare(settings)
    assert all(outcome.position for outcome in DeadLetterStore(settings, files).call())
    check(settings, {})
    assert input_lines(settings).count(FRESH[:-1]) == files.produced > 20


def test_a_torn_line_behind_whole_ones_that_came_after_the_intent_is_completed_or_refused(settings, new_files, crash):
    struck = Struck(settings, new_files, crash, 60)
    ours = struck.path.read_bytes()[len(struck.before) :]
    for tail, is_done in ((ours, True), (ours[:-1] + b"?", False), (b"x" * 1000, False)):
        struck.path.write_bytes(struck.before + FRESH + tail)
        (outcome,) = DeadLetterStore(settings).resume() or [None]
        assert (outcome.position is not None) == is_done
        (settings.out_directory / "dead-letters-actions.jsonl").write_bytes(
            (settings.out_directory / "dead-letters-actions.jsonl").read_bytes().splitlines(keepends=True)[0]
        )


def test_the_input_is_only_ever_appended_to(settings, new_files, crash, operations):
    for fault_at in range(1, operations + 1):
        files = new_files()
        prepare(settings, files)
        files.fault_at, files.torn = fault_at, 40
        with pytest.raises(crash):
            DeadLetterStore(settings, files).call()
        before = (settings.in_directory / "partition-0.jsonl").read_bytes()
        DeadLetterStore(settings).call()
        assert (settings.in_directory / "partition-0.jsonl").read_bytes().startswith(before)


class Struck:
    """A call that crashed when its line was in the input, whole or in part."""

    def __init__(self, settings, new_files, crash, torn):
        set_aside(settings, letter(1, value=b"one"))
        self.path = settings.in_directory / "partition-0.jsonl"
        self.before = self.path.read_bytes()
        fault_at = 0
        while self.path.read_bytes() == self.before:
            fault_at += 1
            (settings.out_directory / "dead-letters-actions.jsonl").unlink(missing_ok=True)
            files = new_files()
            files.fault_at, files.torn = fault_at, torn
            with pytest.raises(crash):
                DeadLetterStore(settings, files).call()


def test_a_line_that_another_writer_corrupted_is_appended_again(settings, new_files, crash):
    """Another producer appended to our torn line without looking. Its line becomes a dead letter; ours is not lost."""
    Struck(settings, new_files, crash, 40)
    append(settings, FRESH)
    (outcome,) = DeadLetterStore(settings).call()
    assert outcome.position is not None
    *_, malformed, ours = input_lines(settings)
    assert malformed.endswith(FRESH[:-1])
    assert decode_line(ours).value == b"one"


def test_a_beginning_that_is_not_ours_is_left_to_whose_it_is_and_the_call_can_be_made_again(settings, new_files, crash):
    struck = Struck(settings, new_files, crash, 40)
    struck.path.write_bytes(struck.before + b'{"other":')
    (outcome,) = DeadLetterStore(settings).call()
    assert "has no end" in outcome.problem
    append(settings, b'1,"value":{}}\n')
    (outcome,) = DeadLetterStore(settings).call()
    assert outcome.position is not None
    assert [each.value for each in records(settings)] == [b"one"]


def test_a_writer_that_takes_our_line_in_at_the_very_moment_is_noticed(settings, new_files):
    class Interrupted(new_files):
        is_interrupted = False

        def write(self, descriptor, data):
            if self.paths[descriptor].name == "partition-0.jsonl" and not self.is_interrupted:
                self.is_interrupted = True
                append(settings, b'{"half":')
            return super().write(descriptor, data)

    set_aside(settings, letter(1, value=b"one"))
    (outcome,) = DeadLetterStore(settings, Interrupted()).call()
    assert outcome.problem == "another program wrote to the input at the same moment and its bytes are inside the line. Try again"
    (outcome,) = DeadLetterStore(settings).call()
    assert outcome.position is not None
    assert [decode_line(line).value for line in input_lines(settings) if isinstance(decode_line(line), Line)][-1] == b"one"


def test_what_was_begun_is_recognised_though_the_dead_letter_was_moved_away(settings, new_files, crash):
    Struck(settings, new_files, crash, 10_000)
    (settings.out_directory / "dead-letters.jsonl").rename(settings.out_directory / "dead-letters-1.jsonl")
    assert DeadLetterStore(settings).resume() == [Outcome("T-0#1", "T-0@25")]
    assert len(records(settings)) == 1


def test_what_was_begun_and_is_not_there_waits_for_its_dead_letter(settings, new_files, crash):
    struck = Struck(settings, new_files, crash, 10_000)
    struck.path.write_bytes(struck.before)
    moved = (settings.out_directory / "dead-letters.jsonl").rename(settings.out_directory / "dead-letters-1.jsonl")
    (outcome,) = DeadLetterStore(settings).resume()
    assert "the dead letter was moved away. Put the dead letter back into" in outcome.problem
    moved.rename(settings.out_directory / "dead-letters.jsonl")
    assert [each.position for each in DeadLetterStore(settings).resume()] == ["T-0@25"]


@pytest.mark.parametrize("what", ["cut", "gone"])
def test_an_input_that_was_cut_or_taken_away_since_is_refused(settings, new_files, crash, what):
    struck = Struck(settings, new_files, crash, 10_000)
    if what == "cut":
        struck.path.write_bytes(b"")
    else:
        struck.path.unlink()
    (outcome,) = DeadLetterStore(settings).resume()
    assert ("has 0 bytes where it had 25: it was cut" if what == "cut" else "there is no such file any more") in outcome.problem
    assert isinstance(next(iter(DeadLetterStore(settings).actions.last().values())), Requeueing)


def test_a_letter_that_died_before_is_requeued_anew_though_its_old_mark_is_in_the_input(settings):
    """With --again the same number is requeued twice. A line from before the second intent does not count as the second line."""
    set_aside(settings, letter(1))
    DeadLetterStore(settings).call()
    assert [each.position for each in DeadLetterStore(settings).named("T-0#1")] != [None]
    assert len(records(settings)) == 2


def test_a_mark_from_before_an_intent_is_not_taken_for_its_line_though_an_older_intent_is_still_open(settings, new_files, crash):
    struck = Struck(settings, new_files, crash, 10_000)
    struck.path.write_bytes(struck.before)
    (settings.out_directory / "dead-letters.jsonl").unlink()
    set_aside(settings, letter(2, value=b"two"))
    assert [each.position is None for each in DeadLetterStore(settings).call()] == [True, False]
    files = new_files()
    # Only the intent becomes durable.
    files.fault_at = 7
    with pytest.raises(crash):
        DeadLetterStore(settings, files).named("T-0#2")
    assert [type(each) for each in DeadLetterStore(settings).actions.last().values()] == [Requeueing, Requeueing]
    assert len(records(settings)) == 1
    assert {each.number for each in DeadLetterStore(settings).resume() if each.position is not None} == {"T-0#2"}
    assert len(records(settings)) == 2
