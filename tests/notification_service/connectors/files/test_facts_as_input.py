"""Facts as the input of another program: it reads them as far as they are published for good, each once."""

import os

import msgspec
import pytest

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportRefused, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from resequencer.record import Partition

P0, F0 = Partition("T", 0), Partition("F", 0)


@pytest.fixture
def settings(settings):
    return msgspec.structs.replace(settings, facts_directory=settings.out_directory.parent / "facts")


@pytest.fixture
def positions(settings):
    return settings.out_directory / "positions.json"


@pytest.fixture
def file(settings):
    return settings.facts_directory / "partition-0.jsonl"


@pytest.fixture
def write(settings):
    """Publish facts with these numbers, as the service does."""
    writer = FileTransport(settings, lambda *_: None)

    def write(*numbers, by=writer):
        facts = tuple(OutputRecord(number, Channel.FACTS, b"group", (), b'{"n":%d}' % number) for number in numbers)
        by.publish([PartitionOutput(P0, facts, Position(numbers[-1], "m"))])

    write(1)
    return write


@pytest.fixture
def reader(settings, positions, tmp_path):
    own = FileSettings("F", settings.facts_directory, tmp_path / "reports", written_by=positions)
    return FileTransport(own, lambda *_: None)


def read(reader, at=None) -> list[bytes]:
    if at is not None:
        reader.seek(F0, at)
    return [each.value for each in reader.poll(100, 0).records]


def test_what_is_published_is_read_in_order_and_once(write, reader, file):
    assert read(reader, at=0) == [b'{"n":1}']
    write(2, 3)
    assert read(reader) == [b'{"n":2}', b'{"n":3}']
    assert read(reader) == []
    assert reader.end_offset(F0) == file.stat().st_size


def test_lines_that_the_positions_do_not_know_yet_are_not_read(write, reader, positions, file):
    before, length = positions.read_bytes(), file.stat().st_size
    write(2)
    after = positions.read_bytes()
    positions.write_bytes(before)
    assert read(reader, at=0) == [b'{"n":1}']
    assert reader.end_offset(F0) == length
    assert reader.poll(100, 0).log_ends == {F0: length}
    positions.write_bytes(after)
    assert read(reader) == [b'{"n":2}']


def test_commands_of_others_beside_the_facts_are_read_though_the_positions_do_not_know_them(write, reader, settings):
    (settings.facts_directory / "partition-1.jsonl").write_bytes(b'{"key":"group","value":{"type":"close"}}\n')
    reader.assignment()
    reader.seek(Partition("F", 1), 0)
    assert sorted([*read(reader, at=0), *read(reader)]) == [b'{"n":1}', b'{"type":"close"}']


def test_lines_that_are_cut_off_again_after_a_failed_write_disturb_no_reader(write, reader, settings, no_space, file):
    """A disk that is full takes some whole lines of a write; they are there until they are cut off."""
    seen: list[list[bytes]] = []

    class Full(SystemFiles):
        def write(self, descriptor, data):
            if b'"n":3' in bytes(data):
                super().write(descriptor, bytes(data)[:-5])
                seen.append(read(reader, at=0))
                raise no_space()
            return super().write(descriptor, data)

    assert read(reader, at=0) == [b'{"n":1}']
    struck = FileTransport(settings, lambda *_: None, Full())
    with pytest.raises(TransportUnavailable, match="ENOSPC"):
        write(2, 3, by=struck)
    assert seen == [[b'{"n":1}']]
    assert read(reader) == []
    write(2, 4)
    assert read(reader) == [b'{"n":2}', b'{"n":4}']
    struck.close()


@pytest.mark.parametrize("damage", [None, b"", b"{", b'{"lengths":{"facts/partition-0.jsonl":-5}}', b'{"format":1}'])
def test_without_positions_it_waits_until_the_service_has_repaired_them(write, reader, positions, damage, settings):
    positions.unlink() if damage is None else positions.write_bytes(damage)
    assert read(reader, at=0) == []
    write(2, by=FileTransport(settings, lambda *_: None))
    assert read(reader) == [b'{"n":1}', b'{"n":2}']


def test_older_positions_that_a_power_cut_brings_back_take_nothing_away(write, reader, positions):
    before = positions.read_bytes()
    write(2)
    assert read(reader, at=0) == [b'{"n":1}', b'{"n":2}']
    positions.write_bytes(before)
    assert read(reader) == []
    write(3)
    assert read(reader) == [b'{"n":3}']


def test_a_reader_that_goes_on_behind_older_positions_begins_where_it_was(write, reader, positions, file):
    before = positions.read_bytes()
    write(2)
    positions.write_bytes(before)
    assert read(reader, at=file.stat().st_size) == []
    write(3)
    assert read(reader) == [b'{"n":3}']


def test_facts_that_were_cut_within_what_was_read_are_refused(write, reader, file):
    assert read(reader, at=0) == [b'{"n":1}']
    os.truncate(file, 10)
    with pytest.raises(TransportRefused, match="it was cut"):
        read(reader)
