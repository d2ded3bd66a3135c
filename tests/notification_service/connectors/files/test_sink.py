"""The file sink: what it writes, in which order, and what it finds when it reads its files again."""

import errno
import json
import os
from contextlib import suppress

import msgspec
import pytest

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportRefused, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles, sync_directory
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, decode_line
from resequencer.record import Partition

P0, P1 = Partition("T", 0), Partition("T", 1)


def output_record(number, channel=Channel.NOTIFICATIONS, value=b'{"a":1}', key=b"uow-1", headers=(("h", b"v"),)):
    return OutputRecord(number, channel, key, headers, value)


def dead(number, value=b"garbage"):
    return output_record(number, Channel.DEAD_LETTERS, value)


def output(*leaving, offset=10, partition=P0, metadata="m"):
    return PartitionOutput(partition, leaving, Position(offset, metadata))


@pytest.fixture
def notifications(settings):
    return settings.out_directory / "notifications.jsonl"


@pytest.fixture
def dead_letters(settings):
    return settings.out_directory / "dead-letters.jsonl"


@pytest.fixture
def positions(settings):
    return settings.out_directory / "positions.json"


@pytest.fixture
def reopen(settings, new_files):
    """Open another transport on the same files, as after a crash: nothing was closed."""
    return lambda files=None: FileTransport(settings, lambda *_: None, files or new_files())


def numbers(path) -> list[str]:
    return [json.loads(line)["number"] for line in path.read_bytes().splitlines()]


def test_nothing_was_published_before_anything_was(transport):
    assert transport.position(P0) is None


def test_a_position_is_what_was_published_last_also_after_a_restart(transport, reopen):
    transport.publish([output(output_record(1), offset=7, metadata="one"), output(partition=P1, offset=0, metadata="two")])
    transport.publish([output(output_record(2), offset=9, metadata="three")])
    for each in (transport, reopen()):
        assert each.position(P0) == Position(9, "three", highest=2)
        assert each.position(P1) == Position(0, "two")


def test_a_record_up_to_the_highest_number_that_a_position_ever_told_is_not_written_again(transport, reopen, notifications):
    """A sink of notifications alone does not see the numbers of dead letters; and a smaller portion may come again."""
    transport.publish([PartitionOutput(P0, (output_record(1),), Position(7, "one", highest=3))])
    transport.publish([PartitionOutput(P0, (output_record(1),), Position(7, "again", highest=1))])
    again = reopen()
    assert transport.position(P0) == again.position(P0) == Position(7, "again", highest=3)
    again.publish([PartitionOutput(P0, (output_record(3), output_record(4)), Position(8, "two", highest=4))])
    assert numbers(notifications) == ["T-0#1", "T-0#4"]


def test_what_leaves_is_a_line_each_in_its_channel_by_ascending_number(transport, notifications, dead_letters):
    transport.publish([output(output_record(1), dead(2), output_record(3)), output(dead(1), partition=P1)])
    assert notifications.read_bytes() == b"".join(
        b'{"key":"uow-1","headers":{"h":"v"},"value":{"a":1},"number":"T-0#%d"}\n' % number for number in (1, 3)
    )
    assert numbers(dead_letters) == ["T-0#2", "T-1#1"]


def test_a_report_over_several_lines_is_written_on_one(transport, notifications):
    transport.publish([output(output_record(1, value=b'{\n  "a": 1.50,\n  "b": "x y"\n}\n'))])
    assert b'"value":{"a":1.50,"b":"x y"},' in notifications.read_bytes()


def test_a_record_that_leaves_as_it_came_keeps_its_lines(transport, notifications):
    value = b'{\n  "a": 1\n}\n'
    passed = OutputRecord(1, Channel.NOTIFICATIONS, b"\xff", (), value, offset=1, prefix="resequencer-")
    transport.publish([output(passed)])
    assert decode_line(notifications.read_bytes()[:-1]) == Line(value, b"\xff")


@pytest.mark.parametrize("value", ["<a>\nü</a>", "{not json\n", "text"])
def test_a_target_that_is_no_json_object_is_a_string(transport, notifications, value):
    transport.publish([output(output_record(1, value=value.encode()))])
    assert json.loads(notifications.read_bytes())["value"] == value


@pytest.mark.parametrize("value", [b"", b'{"a" : 1}', b'{\n"a":1}\r\n', b"\xff\x00\n", "ü\n".encode(), b"\x00" * 50, b'"', b"5"])
def test_a_dead_letter_fed_back_as_input_has_its_exact_bytes(transport, dead_letters, settings, value):
    letter = OutputRecord(1, Channel.DEAD_LETTERS, b"\xff", (("a", b"1"), ("a", b"\xff")), value)
    transport.publish([PartitionOutput(P0, (letter,), Position(1, ""))])
    dead_letters.rename(settings.in_directory / "partition-0.jsonl")
    transport.seek(P0, 0)
    (record,) = transport.poll(10, 0).records
    assert (record.key, record.headers, record.value) == (letter.key, letter.headers, letter.value)
    assert record.defect is None


def test_a_dead_letters_value_is_never_an_object(transport, dead_letters):
    transport.publish([output(dead(1, b'{"a":1}'))])
    assert json.loads(dead_letters.read_bytes())["value"] == '{"a":1}'


def test_what_left_after_the_position_was_written_is_beyond(transport, reopen, positions):
    transport.publish([output(output_record(1), offset=1)])
    before = positions.read_bytes()
    transport.publish([output(output_record(2), dead(3), output_record(4), offset=2), output(output_record(1), partition=P1)])
    positions.write_bytes(before)
    again = reopen()
    assert again.position(P0) == Position(1, "m", frozenset({2, 3, 4}), 1)
    assert again.position(P1) == Position(0, "", frozenset({1}))


def test_what_is_beyond_is_not_written_again(transport, reopen, positions, notifications):
    transport.publish([output(output_record(1))])
    before = positions.read_bytes()
    transport.publish([output(output_record(2), output_record(3))])
    positions.write_bytes(before)
    again = reopen()
    again.publish([output(output_record(2), output_record(3), output_record(4), offset=3)])
    assert numbers(notifications) == ["T-0#1", "T-0#2", "T-0#3", "T-0#4"]
    assert again.position(P0) == reopen().position(P0) == Position(3, "m", highest=4)


def test_what_is_beyond_one_partition_survives_the_publishing_of_another(transport, reopen, positions):
    transport.publish([output(output_record(1)), output(partition=P1)])
    before = positions.read_bytes()
    transport.publish([output(output_record(2), output_record(3), output_record(5))])
    positions.write_bytes(before)
    reopen().publish([output(output_record(1), partition=P1)])
    assert reopen().position(P0) == Position(10, "m", frozenset({2, 3, 5}), 1)


def test_what_is_beyond_stays_until_a_higher_number_was_published(transport, reopen, positions):
    transport.publish([output()])
    before = positions.read_bytes()
    transport.publish([output(output_record(1), output_record(2), output_record(5))])
    positions.write_bytes(before)
    again = reopen()
    again.publish([output()])
    assert again.position(P0).beyond == {1, 2, 5}
    again.publish([output(output_record(3))])
    assert again.position(P0).beyond == {5}
    again.publish([output(output_record(6))])
    assert again.position(P0).beyond == frozenset()


ENTRY = b'{"format":1,"lengths":{},"partitions":[{"topic":"T","partition":0,"metadata":"m",%b}]}'
IMPOSSIBLE = [
    ENTRY % b'"offset":-1',
    ENTRY % b'"offset":9223372036854775808',
    ENTRY % b'"offset":1,"beyond":[[1,1000000000000000]]',
    b'{"format":1,"lengths":{"notifications.jsonl":-1},"partitions":[]}',
]
"""Contents that the service never writes; only a person can write them."""


@pytest.mark.parametrize(
    "damage", [None, b"", b"\x00" * 200, b'{"format":1,"lengths":', b"\xff", b"[]", b'{"format":1}', *IMPOSSIBLE]
)
def test_without_positions_the_outputs_tell_what_has_left(transport, reopen, positions, notifications, damage):
    transport.publish(
        [output(output_record(1), dead(2)), output(output_record(7), partition=P1), output(partition=Partition("T", 2))]
    )
    positions.unlink() if damage is None else positions.write_bytes(damage)
    again = reopen()
    assert again.position(P0) == Position(0, "", frozenset({1, 2}))
    assert again.position(P1) == Position(0, "", frozenset({7}))
    assert again.position(Partition("T", 2)) is None
    again.publish([output(output_record(1), dead(2), output_record(3), offset=5)])
    assert numbers(notifications) == ["T-0#1", "T-1#7", "T-0#3"]
    assert reopen().position(P0) == Position(5, "m", highest=3)


def test_positions_of_a_newer_version_are_refused_and_left_alone(reopen, settings, positions):
    settings.out_directory.mkdir()
    positions.write_text('{"format":2,"lengths":5}')
    with pytest.raises(TransportRefused, match=r"positions.json: has format 2, this version reads 1. Start the version"):
        reopen().position(P0)
    assert positions.read_text() == '{"format":2,"lengths":5}'


def test_a_line_that_a_power_cut_tore_in_its_middle_is_cut_off_with_what_follows(transport, reopen, positions, notifications):
    transport.publish([output(output_record(1))])
    before = positions.read_bytes()
    transport.publish([output(output_record(2), output_record(3), output_record(4))])
    positions.write_bytes(before)
    lines = notifications.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:20] + bytes(10) + lines[2][30:]
    notifications.write_bytes(b"".join(lines))
    again = reopen()
    assert again.position(P0).beyond == {2}
    again.publish([output(output_record(2), output_record(3), output_record(4), offset=2)])
    assert numbers(notifications) == ["T-0#1", "T-0#2", "T-0#3", "T-0#4"]


def test_what_is_cut_off_with_whole_lines_is_kept_beside_the_output(transport, reopen, positions, notifications):
    """The positions are lost, too: so the lines behind a damaged one may have been there for long."""
    for number in range(1, 5):
        transport.publish([output(output_record(number), offset=number)])
    positions.unlink()
    lines = notifications.read_bytes().splitlines(keepends=True)
    lines[1] = bytes(10) + lines[1][10:]
    notifications.write_bytes(b"".join(lines))
    assert reopen().position(P0).beyond == {1}
    assert notifications.read_bytes() == lines[0]
    assert notifications.with_name(f"notifications.jsonl.{len(lines[0])}.cut").read_bytes() == b"".join(lines[1:])


def test_what_left_before_a_crash_is_written_again_where_it_stands(transport, reopen, positions, notifications, new_files):
    """A sync may have failed before: readable data need not be on the disk."""
    transport.publish([output(output_record(1))])
    before, length = positions.read_bytes(), notifications.stat().st_size
    transport.publish([output(output_record(2), output_record(3))])
    positions.write_bytes(before)
    whole, written = notifications.read_bytes(), []

    class Noting(new_files):
        def write(self, descriptor, data):
            written.append((self.paths[descriptor], os.lseek(descriptor, 0, os.SEEK_CUR), bytes(data)))
            return super().write(descriptor, data)

    assert reopen(Noting()).position(P0).beyond == {2, 3}
    assert written == [(notifications, length, whole[length:])]
    assert notifications.read_bytes() == whole


def test_the_name_of_the_positions_is_synced_when_a_partition_is_new(transport, new_files, settings):
    synced = []

    class Noting(new_files):
        def fsync(self, descriptor):
            synced.append(self.paths[descriptor].name)
            super().fsync(descriptor)

    noting = FileTransport(settings, lambda *_: None, Noting())
    for partition, expected in ((P0, True), (P0, False), (P1, True), (P1, False)):
        noting.position(P0)
        synced.clear()
        noting.publish([output(partition=partition)])
        assert (synced == ["positions.json.tmp", "out"]) is expected, synced
    noting.close()


@pytest.mark.parametrize("channel", [Channel.NOTIFICATIONS, Channel.DEAD_LETTERS])
def test_a_last_line_torn_at_any_byte_is_mended(transport, reopen, settings, channel):
    path = settings.out_directory / f"{channel}.jsonl"
    transport.publish([output(output_record(1), dead(2))])
    good = path.read_bytes()
    whole = good.replace(b"#1", b"#3").replace(b"#2", b"#3")
    for length in range(len(whole) + 1):
        path.write_bytes(good + whole[:length])
        is_whole = length == len(whole)
        assert reopen().position(P0) == Position(10, "m", frozenset({3}) if is_whole else frozenset(), 2)
        assert path.read_bytes() == good + (whole if is_whole else b"")


def test_lines_without_a_number_are_left_as_they_are(transport, reopen, notifications, positions, caplog):
    transport.publish([output(output_record(1))])
    with notifications.open("ab") as file:
        file.write(b'hello\n{"number":"T"}\n{"number":"T-0#x"}\n{"number":"T-0#2"}\n')
    before = notifications.read_bytes()
    assert reopen().position(P0).beyond == {2}
    assert notifications.read_bytes() == before
    assert "3 lines" in caplog.text


@pytest.mark.parametrize("kept", [1, 40])
def test_an_output_that_was_cut_is_refused(transport, reopen, notifications, kept):
    transport.publish([output(output_record(1))])
    size = notifications.stat().st_size
    os.truncate(notifications, kept)
    for each in (transport, reopen()):
        with pytest.raises(
            TransportRefused, match=rf"notifications.jsonl: has {kept} bytes where {size} were written.*Restore the missing"
        ):
            each.publish([output(output_record(2))])
    assert notifications.stat().st_size == kept


def test_an_output_that_was_edited_is_refused(transport, reopen, notifications):
    transport.publish([output(output_record(1))])
    notifications.write_bytes(notifications.read_bytes().replace(b"\n", b" ") + b"more\n")
    with pytest.raises(TransportRefused, match=r"no line ends at byte \d+.*edited.*move the file away"):
        reopen().position(P0)


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("rotation", ["moved", "moved and created", "emptied"])
def test_a_rotated_output_is_begun_anew_and_nothing_is_lost_or_doubled(
    transport, reopen, notifications, settings, rotation, is_running
):
    transport.publish([output(output_record(1), output_record(2))])
    moved = settings.out_directory / "notifications.jsonl.1"
    if rotation == "emptied":
        moved.write_bytes(notifications.read_bytes())
        os.truncate(notifications, 0)
    else:
        notifications.rename(moved)
    if rotation == "moved and created":
        notifications.touch()
    transport = transport if is_running else reopen()
    transport.publish([output(output_record(3))])
    transport.publish([output(output_record(4), offset=11)])
    assert (numbers(moved), numbers(notifications)) == (["T-0#1", "T-0#2"], ["T-0#3", "T-0#4"])
    assert reopen().position(P0) == Position(11, "m", highest=4)


def test_a_crash_behind_a_rotation_forgets_nothing(settings, reopen, new_files, crash, notifications):
    """Whichever operation the crash hits, each line of the old and of the new file leaves once."""
    step = 0
    while True:
        step += 1
        files = new_files()
        for path in settings.out_directory.glob("*"):
            path.unlink()
        transport = reopen(files)
        transport.publish([output(output_record(1))])
        # The first attempt appends, but cannot write the positions: number 2 is beyond the position when the file is moved.
        files.fault, files.fault_at = (lambda: OSError(errno.ENOSPC, "full")), files.count + 3
        with pytest.raises(TransportUnavailable):
            transport.publish([output(output_record(2))])
        moved = settings.out_directory / "moved"
        notifications.rename(moved)
        files.fault, files.fault_at = crash, files.count + step
        crashed = False
        try:
            transport.publish([output(output_record(2), output_record(3), metadata="3")])
        except crash:
            crashed = True
        transport.close()
        found = reopen().position(P0)
        if found.metadata != "3":
            reopen().publish([output(output_record(2), output_record(3), metadata="3")])
        came = numbers(moved) + numbers(notifications)
        # Only a crash before the positions name the new file loses which lines of the old file were beyond the position.
        if 2 in found.beyond or found.metadata == "3":
            assert came == ["T-0#1", "T-0#2", "T-0#3"]
        else:
            assert set(came) == {"T-0#1", "T-0#2", "T-0#3"}
            assert step <= 6
        if not crashed:
            return


def test_a_power_cut_behind_a_rotation_brings_back_no_length_of_the_old_file(settings, reopen, new_files, crash, notifications):
    for step in range(1, 15):
        for path in settings.out_directory.glob("*"):
            path.unlink()
        files = new_files()
        transport = reopen(files)
        transport.publish([output(output_record(1), metadata="1")])
        sync_directory(files, settings.out_directory)
        notifications.rename(settings.out_directory / "moved")
        files.fault_at = files.count + step
        with suppress(crash):
            transport.publish([output(output_record(2), metadata="2")])
        transport.close()
        files.cut_power(names_are_lost=True)
        found = reopen().position(P0)
        has_left = notifications.exists() and b"#2" in notifications.read_bytes()
        assert has_left == (found.metadata == "2" or 2 in found.beyond)


def test_after_a_power_cut_the_position_is_one_that_was_written(settings, reopen, new_files, positions):
    for names_are_lost, metadata in ((True, "1"), (False, "2")):
        files = new_files()
        transport = reopen(files)
        transport.publish([output(metadata="1")])
        sync_directory(files, settings.out_directory)
        transport.publish([output(metadata="2")])
        files.cut_power(names_are_lost=names_are_lost)
        assert reopen().position(P0) == Position(10, metadata)


def test_lines_that_another_program_appends_are_kept(transport, notifications):
    transport.publish([output(output_record(1))])
    with notifications.open("ab") as file:
        file.write(b'{"number":"T-1#9"}\n')
    transport.publish([output(output_record(2))])
    assert numbers(notifications) == ["T-0#1", "T-1#9", "T-0#2"]


def test_an_output_directory_that_is_a_file_is_refused(settings, reopen):
    settings.out_directory.write_text("")
    with pytest.raises(TransportRefused, match=r"out: EEXIST"):
        reopen().position(P0)


def test_an_output_that_is_a_directory_is_refused(settings, reopen, notifications):
    notifications.mkdir(parents=True)
    with pytest.raises(TransportRefused, match=r"notifications.jsonl: EISDIR"):
        reopen().position(P0)


def test_outputs_are_not_for_everybody_to_read(transport, notifications, positions):
    transport.publish([output(output_record(1))])
    assert not (notifications.stat().st_mode | positions.stat().st_mode) & 0o007


def test_a_write_that_takes_a_part_at_a_time_is_completed(reopen, notifications):
    class Slow(SystemFiles):
        def write(self, descriptor, data):
            return super().write(descriptor, data[:7])

    transport = reopen(Slow())
    transport.publish([output(output_record(1), output_record(2))])
    assert numbers(notifications) == ["T-0#1", "T-0#2"]
    assert reopen().position(P0) == Position(10, "m", highest=2)


# Facts


VALUE = '{"type":"status","unit":"ü-1","status":"ACSC","amount":"1.50","original":{"OrgnlMsgId":"A\\"b"}}'.encode()


def fact(number, value=VALUE, key=b"GROUP"):
    return output_record(number, Channel.FACTS, value, key, (("member", "ü-1".encode()), ("late", b"true")))


@pytest.fixture
def with_facts(settings):
    return msgspec.structs.replace(settings, facts_directory=settings.out_directory.parent / "deep" / "facts", rotate_bytes=1)


@pytest.fixture
def open_with_facts(with_facts, new_files):
    return lambda files=None: FileTransport(with_facts, lambda *_: None, files or new_files())


@pytest.fixture
def facts(with_facts):
    return with_facts.facts_directory / "partition-0.jsonl"


def test_facts_of_all_partitions_are_lines_of_one_file_that_is_an_input_and_never_rotated(
    open_with_facts, with_facts, facts, notifications
):
    transport = open_with_facts()
    for number in (1, 3):
        transport.publish([output(output_record(number), fact(number + 1)), output(fact(number), partition=P1)])
    assert numbers(facts) == ["T-0#2", "T-1#1", "T-0#4", "T-1#3"]
    assert notifications.with_name("notifications.000001.jsonl").exists()
    assert list(facts.parent.iterdir()) == [facts]
    reader = FileTransport(msgspec.structs.replace(with_facts, topic="F", in_directory=facts.parent), lambda *_: None)
    reader.seek(Partition("F", 0), 0)
    records = reader.poll(10, 0).records
    assert [(each.key, each.headers, each.value) for each in records] == [(b"GROUP", fact(1).headers, VALUE)] * 4


def test_the_length_of_the_facts_is_among_those_of_the_outputs_under_a_name_that_no_output_has(open_with_facts, facts, positions):
    open_with_facts().publish([output(fact(1))])
    lengths = json.loads(positions.read_bytes())["lengths"]
    assert lengths["facts/partition-0.jsonl"] == facts.stat().st_size
    assert len(lengths) == 3


def test_facts_that_left_after_the_position_was_written_are_not_written_again(open_with_facts, positions, facts):
    transport = open_with_facts()
    transport.publish([output(fact(1))])
    before = positions.read_bytes()
    transport.publish([output(output_record(2), fact(3))])
    positions.write_bytes(before)
    again = open_with_facts()
    assert again.position(P0).beyond == {2, 3}
    again.publish([output(output_record(2), fact(3), fact(4), offset=3)])
    assert numbers(facts) == ["T-0#1", "T-0#3", "T-0#4"]


def test_facts_are_synced_before_the_positions_tell_of_them(open_with_facts, new_files):
    synced = []

    class Noting(new_files):
        def fsync(self, descriptor):
            synced.append(self.paths[descriptor].name)
            super().fsync(descriptor)

    transport = open_with_facts(Noting())
    transport.position(P0)
    synced.clear()
    transport.publish([output(output_record(1), dead(2), fact(3))])
    assert synced[:4] == ["notifications.jsonl", "dead-letters.jsonl", "partition-0.jsonl", "positions.json.tmp"]


def test_the_names_of_the_directories_of_the_facts_are_synced_when_they_are_made(open_with_facts, facts, new_files):
    synced = []

    class Noting(new_files):
        def fsync(self, descriptor):
            synced.append(self.paths[descriptor])
            super().fsync(descriptor)

    open_with_facts(Noting()).position(P0)
    assert {facts.parent, facts.parent.parent, facts.parent.parent.parent} <= set(synced)


def test_without_a_directory_for_facts_those_that_are_still_pending_are_dropped(transport, settings, positions):
    transport.publish([output(output_record(1), fact(2), offset=5)])
    assert transport.position(P0) == Position(5, "m", highest=2)
    assert set(json.loads(positions.read_bytes())["lengths"]) == {"notifications.jsonl", "dead-letters.jsonl"}
    assert {each.name for each in settings.out_directory.parent.iterdir()} == {"in", "out"}


def test_facts_that_were_off_for_a_while_go_on_behind_those_that_were(open_with_facts, reopen, facts):
    open_with_facts().publish([output(fact(1), fact(2))])
    reopen().publish([output(output_record(3))])
    again = open_with_facts()
    assert again.position(P0).beyond == {1, 2}
    again.publish([output(fact(4), offset=11, metadata="n")])
    assert numbers(facts) == ["T-0#1", "T-0#2", "T-0#4"]
    assert open_with_facts().position(P0) == Position(11, "n", highest=4)
