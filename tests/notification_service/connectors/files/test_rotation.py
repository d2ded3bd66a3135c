"""Rotation of full outputs: it loses and doubles nothing, and all files together hold each line once, in order."""

import errno
import json
import os
import subprocess
from functools import partial
from itertools import count

import msgspec
import pytest

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles, sync_directory
from notification_service.connectors.files.rotated_names import find_rotated, rotated_path
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.files.sink import FileTransport
from resequencer.record import Partition
from tests.harness.waiting import wait_until

P0 = Partition("T", 0)


@pytest.fixture
def settings(settings):
    return msgspec.structs.replace(settings, rotate_bytes=1)


@pytest.fixture
def notifications(settings):
    return settings.out_directory / "notifications.jsonl"


@pytest.fixture
def positions(settings):
    return settings.out_directory / "positions.json"


def reopened(settings, files=None):
    return FileTransport(settings, lambda *_: None, files or SystemFiles())


def publish(transport, *numbers, channel=Channel.NOTIFICATIONS, metadata="m"):
    records = tuple(OutputRecord(number, channel, b"k", (), b"%d" % number) for number in numbers)
    transport.publish([PartitionOutput(P0, records, Position(1, metadata))])


def numbers(path) -> list[int]:
    return [int(json.loads(line)["number"].partition("#")[2]) for line in path.read_bytes().splitlines()]


def all_numbers(path) -> list[int]:
    return [int(json.loads(line.content)["number"].partition("#")[2]) for _, line in scan_output(path, SystemFiles())]


def names(settings) -> list[str]:
    return sorted(each.name for each in settings.out_directory.iterdir())


def empty(settings) -> None:
    for path in settings.out_directory.glob("*"):
        path.unlink()


def test_a_full_output_is_rotated_before_more_is_written_to_it(settings, notifications):
    transport = reopened(msgspec.structs.replace(settings, rotate_bytes=100))
    for number in range(1, 7):
        publish(transport, number)
    # A line has 47 bytes: the file is full with the third line, and the fourth goes to a new file.
    assert names(settings) == ["dead-letters.jsonl", "notifications.000001.jsonl", "notifications.jsonl", "positions.json"]
    assert (numbers(rotated_path(notifications, 1)), numbers(notifications)) == ([1, 2, 3], [4, 5, 6])


def test_nothing_is_rotated_unless_a_size_is_given(settings, notifications):
    transport = reopened(msgspec.structs.replace(settings, rotate_bytes=None))
    for number in range(1, 9):
        publish(transport, number)
    assert find_rotated(notifications) == []


def test_each_output_is_rotated_by_its_own_size(settings, notifications):
    transport = reopened(settings)
    publish(transport, 1)
    publish(transport, 2, channel=Channel.DEAD_LETTERS)
    publish(transport, 3)
    assert all_numbers(notifications) == [1, 3]
    assert [each.number for each in find_rotated(notifications)] == [1]
    assert [each.number for each in find_rotated(settings.out_directory / "dead-letters.jsonl")] == [1]


def test_a_name_is_given_once_though_its_file_was_taken_away(settings, notifications):
    transport = reopened(settings)
    for number in range(1, 4):
        publish(transport, number)
    for each in find_rotated(notifications):
        each.path.rename(each.path.with_suffix(".away"))
    transport.close()
    publish(reopened(settings), 4)
    assert [each.number for each in find_rotated(notifications)] == [3]


def test_a_name_of_a_file_that_exists_is_not_taken_even_if_the_positions_were_lost(settings, notifications, positions):
    publish(reopened(settings), 1)
    rotated_path(notifications, 7).write_bytes(b"another's\n")
    positions.unlink()
    publish(reopened(settings), 2)
    assert rotated_path(notifications, 7).read_bytes() == b"another's\n"
    assert numbers(rotated_path(notifications, 8)) == [1]


def test_only_so_many_notifications_are_kept_and_all_dead_letters(settings, notifications):
    transport = reopened(msgspec.structs.replace(settings, notifications_kept=2))
    for number in range(1, 10, 2):
        publish(transport, number)
        publish(transport, number + 1, channel=Channel.DEAD_LETTERS)
    assert [each.number for each in find_rotated(notifications)] == [4, 5]
    assert all_numbers(notifications) == [7, 9]
    assert all_numbers(settings.out_directory / "dead-letters.jsonl") == [2, 4, 6, 8, 10]


def test_a_rotated_file_that_cannot_be_deleted_delays_nothing(settings, notifications, caplog):
    class Sticky(SystemFiles):
        def unlink(self, path):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    transport = reopened(msgspec.structs.replace(settings, notifications_kept=1), Sticky())
    for number in range(1, 5):
        publish(transport, number)
    assert all_numbers(notifications) == [1, 2, 3, 4]
    assert "cannot delete rotated notifications beyond the last 1: Operation not permitted" in caplog.text


def test_after_a_restart_the_position_is_the_one_behind_the_rotation(settings):
    transport = reopened(settings)
    for number in range(1, 4):
        publish(transport, number, metadata=str(number))
    assert reopened(settings).position(P0) == Position(1, "3", highest=3)


def test_without_positions_the_file_that_was_rotated_last_tells_too_what_has_left(settings, positions):
    transport = reopened(settings)
    publish(transport, 1)
    publish(transport, 2)
    publish(transport, 3, channel=Channel.DEAD_LETTERS)
    positions.unlink()
    assert [each.number for each in find_rotated(settings.out_directory / "notifications.jsonl")] == [1, 2]
    assert reopened(settings).position(P0) == Position(0, "", frozenset({2, 3}))


@pytest.mark.parametrize("lost", ["nothing", "all names", "positions.json"])
def test_what_left_beyond_its_position_is_remembered_over_a_rotation(settings, new_files, crash, notifications, lost):
    """A line is appended, but the disk has no room for its position. The next call rotates and dies at any operation, or a power
    cut takes the names of files that were not synced.
    """
    for step in count(1):
        empty(settings)
        files = new_files()
        # Two lines are too many: the line that the first attempt appends makes the file full.
        transport = reopened(msgspec.structs.replace(settings, rotate_bytes=60), files)
        publish(transport, 1, metadata="1")
        sync_directory(files, settings.out_directory)
        files.fault, files.fault_at = (lambda: OSError(errno.ENOSPC, "full")), files.count + 3
        with pytest.raises(TransportUnavailable):
            publish(transport, 2, metadata="2")
        files.fault, files.fault_at = crash, files.count + step
        try:
            publish(transport, 2, 3, metadata="3")
        except crash:
            pass
        else:
            assert step > 10
            return
        if lost != "nothing":
            files.cut_power(names_are_lost=True, only=None if lost == "all names" else lost)
        again = reopened(settings)
        found = again.position(P0)
        assert found is not None
        if found.metadata != "3":
            publish(again, *(number for number in (2, 3) if number not in found.beyond), metadata="3")
        assert all_numbers(notifications) == [1, 2, 3]


def test_what_is_rotated_while_it_is_read_is_read_once_and_nothing_is_missed(settings, notifications):
    """After every line that is read, the service writes and rotates again."""
    transport = reopened(settings)
    next_number = count(1)
    for _ in range(3):
        publish(transport, next(next_number))
    came = []
    for _, line in scan_output(notifications, SystemFiles()):
        came.append(int(json.loads(line.content)["value"]))
        publish(transport, next(next_number))
    assert came == [1, 2, 3]


@pytest.mark.slow
def test_tail_follows_over_rotations_and_has_every_line_once(settings, notifications):
    transport = reopened(msgspec.structs.replace(settings, rotate_bytes=5_000))
    publish(transport, 1)
    log = settings.out_directory.parent / "tailed"
    with log.open("wb") as written:
        tail = subprocess.Popen(["tail", "-n", "+1", "-F", str(notifications)], stdout=written, stderr=subprocess.DEVNULL)
    try:
        for first in range(2, 600, 50):
            for number in range(first, first + 50):
                publish(transport, number)
            wait_until(partial(_has_lines, log, first + 49), "tail is up to date")
    finally:
        tail.kill()
        tail.wait()
    assert numbers(log) == list(range(1, 602))
    assert len(find_rotated(notifications)) >= 5


def _has_lines(path, count) -> bool:
    return path.read_bytes().count(b"\n") >= count


def test_outputs_are_not_for_everybody_to_read_after_a_rotation_either(settings, notifications):
    transport = reopened(settings)
    publish(transport, 1)
    publish(transport, 2)
    for path in (rotated_path(notifications, 1), notifications):
        assert not os.stat(path).st_mode & 0o007
