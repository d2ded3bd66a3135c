"""The archive of an input's beginning: after any failure, every line is in the input or the archive, at its old position."""

import errno
import gzip
import json
import os
import re
import subprocess
from itertools import count

import pytest

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.files import input_archive
from notification_service.connectors.files.input_archive import ArchivedMarker, InputArchive
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.sink import FileTransport
from resequencer.record import Partition

P0 = Partition("T", 0)
BLOCK = 4096
LINES = [b'{"key":"k%d","value":"%s"}\n' % (number, b"x" * (number % 7) * 150) for number in range(60)]
CONTENT = b"".join(LINES)


@pytest.fixture
def partition_file(settings):
    settings.in_directory.mkdir()
    path = settings.in_directory / "partition-0.jsonl"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(input_archive, "PIECE_BYTES", 5_000)


def offset_of(number) -> int:
    return sum(map(len, LINES[:number]))


def move(directory, partition_file, until, files=None):
    return list(InputArchive(directory, files or SystemFiles()).move(partition_file, until))


def archived(directory) -> dict[int, bytes]:
    """Return the archived pieces by the offset of their first byte."""
    found = {}
    for path in sorted(directory.glob("*.gz")) if directory.exists() else ():
        start, end = map(int, re.findall(r"\d{16}", path.name))
        found[start] = gzip.decompress(path.read_bytes())
        assert len(found[start]) == end - start
    return found


def check_that_nothing_is_lost(directory, partition_file, content=CONTENT):
    """Check that input and pieces together hold what was written, and that the input begins where its marker says."""
    whole = bytearray(partition_file.read_bytes())
    assert len(whole) == len(content)
    for start, piece in archived(directory).items():
        whole[start : start + len(piece)] = piece
    assert bytes(whole) == content
    begins = ArchivedMarker(partition_file, SystemFiles()).offset()
    assert partition_file.read_bytes()[begins:] == content[begins:]
    assert begins == 0 or content[begins - 1 : begins] == b"\n"


def test_what_is_done_with_lies_in_the_archive_and_offsets_stay(directory, partition_file):
    until = offset_of(50)
    before = os.stat(partition_file)
    (piece,) = move(directory, partition_file, until)
    assert (piece.start, piece.end) == (0, until)
    assert piece.path.name == f"partition-0.{0:016d}-{until:016d}.jsonl.gz"
    assert archived(directory) == {0: CONTENT[:until]}
    after = os.stat(partition_file)
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert after.st_blocks * 512 < before.st_blocks * 512 - until + 3 * BLOCK
    assert partition_file.read_bytes()[until:] == CONTENT[until:]
    assert json.loads((partition_file.parent / "partition-0.archived").read_bytes()) == {"format": 1, "to": until}


def test_a_second_call_goes_on_where_the_first_ended(directory, partition_file):
    for number in (0, 20, 20, 55, 60):
        move(directory, partition_file, offset_of(number))
        check_that_nothing_is_lost(directory, partition_file)
    assert list(archived(directory)) == [0, offset_of(20), offset_of(55)]


def test_a_reader_goes_on_and_one_that_begins_anew_begins_behind_the_archive(directory, partition_file, settings):
    running = FileTransport(settings, lambda *_: None, SystemFiles())
    running.seek(P0, running.start_offset(P0))
    assert len(running.poll(40, 0).records) == 40
    move(directory, partition_file, offset_of(40))
    with partition_file.open("ab") as file:
        file.write(b'{"key":"new","value":{}}\n')
    assert [record.origin.offset for record in running.poll(500, 0).records] == [*map(offset_of, range(40, 60)), len(CONTENT)]
    fresh = FileTransport(settings, lambda *_: None, SystemFiles())
    assert fresh.start_offset(P0) == offset_of(40)
    fresh.seek(P0, fresh.start_offset(P0))
    assert [record.key for record in fresh.poll(1, 0).records] == [b"k40"]
    assert fresh._source.ignored == set()


def test_what_the_archive_leaves_tells_whether_the_file_was_rewritten(directory, partition_file, settings):
    transport = FileTransport(settings, lambda *_: None, SystemFiles())
    transport.seek(P0, 0)
    polled = transport.poll(40, 0)
    offset, state = polled.next_offsets[P0], polled.source_states[P0]
    assert offset == offset_of(40) > 3 * BLOCK
    for until in (20, 40):
        move(directory, partition_file, offset_of(until))
        FileTransport(settings, lambda *_: None, SystemFiles()).seek(P0, offset, state)
    archive = partition_file.read_bytes()
    partition_file.write_bytes(archive[: offset - 10] + b"X" + archive[offset - 9 :])
    with pytest.raises(TransportRefused, match="it was rewritten"):
        FileTransport(settings, lambda *_: None, SystemFiles()).seek(P0, offset, state)
    partition_file.write_bytes(CONTENT)
    FileTransport(settings, lambda *_: None, SystemFiles()).seek(P0, offset, state)


def test_what_an_archive_has_cut_away_is_not_compared(partition_file, settings):
    """As the baseline cuts: all whole blocks before the position."""
    transport = FileTransport(settings, lambda *_: None, SystemFiles())
    transport.seek(P0, 0)
    polled = transport.poll(40, 0)
    length = (polled.next_offsets[P0] - 1) // BLOCK * BLOCK
    partition_file.write_bytes(b"\0" * length + CONTENT[length:])
    again = FileTransport(settings, lambda *_: None, SystemFiles())
    again.seek(P0, polled.next_offsets[P0], polled.source_states[P0])
    later = again.poll(1, 0)
    partition_file.write_bytes(CONTENT)  # The file was made whole again.
    FileTransport(settings, lambda *_: None, SystemFiles()).seek(P0, later.next_offsets[P0], later.source_states[P0])


def test_reading_begins_behind_an_archive_that_ends_at_the_end_of_a_block(directory, partition_file, settings):
    partition_file.write_bytes(b"x" * (2 * BLOCK - 1) + b"\n" + LINES[1])
    move(directory, partition_file, 2 * BLOCK)
    transport = FileTransport(settings, lambda *_: None, SystemFiles())
    transport.seek(P0, transport.start_offset(P0))
    assert [record.key for record in transport.poll(9, 0).records] == [b"k1"]


def test_pieces_end_with_a_line_and_are_no_longer_than_they_may_be(directory, partition_file, small_pieces):
    move(directory, partition_file, offset_of(60))
    pieces = archived(directory)
    assert len(pieces) > 5
    assert all(piece.endswith(b"\n") and len(piece) <= 5_000 for piece in pieces.values())
    assert b"".join(pieces.values()) == CONTENT


def test_a_line_that_is_longer_than_a_piece_is_one_all_the_same(directory, partition_file, small_pieces):
    content = LINES[1] + b"x" * 20_000 + b"\n" + LINES[2]
    partition_file.write_bytes(content)
    move(directory, partition_file, len(content))
    check_that_nothing_is_lost(directory, partition_file, content)
    assert [len(piece) for piece in archived(directory).values()] == [len(LINES[1]), 20_001 + len(LINES[2])]


def test_the_input_can_be_made_whole_again(directory, partition_file, settings):
    """The steps are those of the operations guide."""
    for number in (30, 45):
        move(directory, partition_file, offset_of(number))
    for path in sorted(directory.glob("*.gz")):
        start = int(path.name.split(".")[1].partition("-")[0])
        command = f"gunzip -c {path} | dd of={partition_file} conv=notrunc oflag=seek_bytes seek={start}"
        subprocess.run(command, shell=True, check=True, capture_output=True)
    (partition_file.parent / "partition-0.archived").unlink()
    assert partition_file.read_bytes() == CONTENT
    transport = FileTransport(settings, lambda *_: None, SystemFiles())
    assert transport.start_offset(P0) == 0


def test_without_its_beginning_the_hole_costs_a_dead_letter_and_what_follows_is_read(directory, partition_file, settings):
    move(directory, partition_file, offset_of(50))
    (partition_file.parent / "partition-0.archived").unlink()
    transport = FileTransport(settings, lambda *_: None, SystemFiles())
    transport.seek(P0, transport.start_offset(P0))
    hole, *rest = transport.poll(500, 0).records
    assert (hole.origin.offset, hole.defect is not None) == (0, True)
    assert [record.key for record in rest][-10:] == [b"k%d" % number for number in range(50, 60)]


def test_archives_are_not_for_everybody_to_read(directory, partition_file):
    (piece,) = move(directory, partition_file, offset_of(9))
    assert not piece.path.stat().st_mode & 0o007


# Failures


@pytest.fixture
def operations(directory, partition_file, small_pieces, new_files):
    files = new_files()
    move(directory, partition_file, offset_of(50), files)
    clear(directory, partition_file)
    return files.count


def clear(directory, partition_file):
    for path in (*directory.glob("*"), *partition_file.parent.glob("*.archived*")):
        path.unlink()
    directory.rmdir()
    partition_file.write_bytes(CONTENT)


@pytest.mark.slow
@pytest.mark.parametrize("torn", [0, 1, 60])
def test_a_crash_at_any_operation_loses_nothing_and_the_next_call_goes_on(
    directory, partition_file, new_files, crash, operations, torn
):
    for fault_at in range(1, operations + 1):
        files = new_files()
        files.fault_at, files.torn = fault_at, torn
        with pytest.raises(crash):
            move(directory, partition_file, offset_of(50), files)
        check_that_nothing_is_lost(directory, partition_file)
        move(directory, partition_file, offset_of(55))
        check_that_nothing_is_lost(directory, partition_file)
        assert b"".join(archived(directory).values()) == CONTENT[: offset_of(55)]
        assert partition_file.stat().st_blocks * 512 <= len(CONTENT) - offset_of(55) + 3 * BLOCK
        clear(directory, partition_file)


@pytest.mark.slow
@pytest.mark.parametrize("names_are_lost", [False, True])
def test_a_power_cut_at_any_operation_loses_nothing_and_the_next_call_goes_on(
    directory, partition_file, new_files, crash, operations, names_are_lost
):
    """Freed blocks stay free, whatever else the power cut takes."""
    for fault_at in range(1, operations + 1):
        files = new_files()
        files.fault_at = fault_at
        with pytest.raises(crash):
            move(directory, partition_file, offset_of(50), files)
        files.cut_power(names_are_lost=names_are_lost)
        check_that_nothing_is_lost(directory, partition_file)
        move(directory, partition_file, offset_of(55))
        check_that_nothing_is_lost(directory, partition_file)
        clear(directory, partition_file)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_the_same_call_again_after_any_failure_loses_nothing(directory, partition_file, new_files, operations, number):
    for fault_at in range(1, operations + 1):
        files = new_files()
        files.fault_at, files.fault = fault_at, lambda: OSError(number, "struck")
        with pytest.raises(TransportUnavailable, match=f"{errno.errorcode[number]}: struck"):
            move(directory, partition_file, offset_of(50), files)
        check_that_nothing_is_lost(directory, partition_file)
        move(directory, partition_file, offset_of(50), files)
        assert b"".join(archived(directory).values()) == CONTENT[: offset_of(50)]
        clear(directory, partition_file)


def test_a_producer_that_appends_at_every_moment_loses_nothing(directory, partition_file, small_pieces, new_files):
    fresh, appended = b'{"key":"fresh","value":{}}\n', count()

    class Busy(new_files):
        def _strike(self):
            with partition_file.open("ab") as file:
                file.write(fresh)
            next(appended)
            return super()._strike()

    move(directory, partition_file, offset_of(50), Busy())
    check_that_nothing_is_lost(directory, partition_file, CONTENT + fresh * next(appended))


def test_a_piece_that_cannot_be_read_back_takes_nothing_from_the_input(directory, partition_file):
    class Lying(SystemFiles):
        def write(self, descriptor, data):
            super().write(descriptor, bytes(data).replace(b"\x00", b"\x01") if bytes(data).startswith(b"\x1f\x8b") else data)
            return len(data)

        def read(self, descriptor, size, offset):
            data = super().read(descriptor, size, offset)
            return data[:-9] + b"!" + data[-8:] if data.startswith(b"\x1f\x8b") else data

    with pytest.raises(TransportRefused, match=r"partition-0.tmp: does not hold the bytes"):
        move(directory, partition_file, offset_of(50), Lying())
    assert partition_file.read_bytes() == CONTENT
    assert archived(directory) == {}


def test_a_piece_in_the_archive_that_is_another_input_s_is_refused(directory, partition_file):
    (piece,) = move(directory, partition_file, offset_of(50))
    (partition_file.parent / "partition-0.archived").unlink()
    with pytest.raises(TransportRefused, match=rf"{piece.path.name}: does not hold the bytes at its place"):
        move(directory, partition_file, offset_of(55))
    assert len(archived(directory)) == 1


def test_another_file_in_the_place_of_the_input_is_refused_and_stays_whole(directory, partition_file):
    (piece,) = move(directory, partition_file, offset_of(50))
    other = CONTENT.replace(b"xx", b"yy")
    partition_file.write_bytes(other)
    with pytest.raises(TransportRefused, match=rf"{piece.path.name}: does not hold the bytes at its place"):
        move(directory, partition_file, offset_of(55))
    assert partition_file.read_bytes() == other
    piece.path.unlink()
    move(directory, partition_file, offset_of(55))
    assert partition_file.read_bytes()[: 2 * BLOCK] == other[: 2 * BLOCK]


def test_an_input_that_was_cut_is_refused(directory, partition_file):
    with pytest.raises(TransportRefused, match=r"has \d+ bytes but was read up to position \d+: it was cut"):
        move(directory, partition_file, len(CONTENT) + 1)
    assert not archived(directory)


def test_a_file_system_that_gives_nothing_back_is_told_and_nothing_is_lost(directory, partition_file, monkeypatch):
    monkeypatch.setattr(input_archive, "PIECE_BYTES", 3 * BLOCK)

    class Whole(SystemFiles):
        def punch(self, descriptor, start, length):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    for _ in range(2):
        with pytest.raises(TransportRefused, match=r"cannot free a part of a file \(Operation not supported\).*ext4"):
            move(directory, partition_file, offset_of(50), Whole())
        assert partition_file.read_bytes() == CONTENT
        check_that_nothing_is_lost(directory, partition_file)
    assert len(archived(directory)) == 1


@pytest.mark.parametrize(
    "damage", [b"", b"\x00" * 20, b'{"format":1}', b'{"format":1,"to":"5"}', b'{"format":1,"to":-5}', b"\xff", b"[" * 5000]
)
def test_a_damaged_beginning_is_refused_with_the_remedy(directory, partition_file, settings, damage):
    (partition_file.parent / "partition-0.archived").write_bytes(damage)
    with pytest.raises(TransportRefused, match=r"partition-0.archived: is damaged .* the second number in the name of the last"):
        FileTransport(settings, lambda *_: None, SystemFiles()).start_offset(P0)
    with pytest.raises(TransportRefused, match="is damaged"):
        move(directory, partition_file, 10)


def test_a_beginning_of_a_newer_version_is_refused(partition_file, settings):
    (partition_file.parent / "partition-0.archived").write_bytes(b'{"format":2,"to":5}')
    with pytest.raises(TransportRefused, match="has format 2, this version reads 1"):
        FileTransport(settings, lambda *_: None, SystemFiles()).start_offset(P0)
