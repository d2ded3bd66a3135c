"""The file source: which lines are records, their order, how far it reads, and what it refuses."""

import errno
import hashlib
import os
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.files.line_reader import BEGINNING_BYTES
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, encode_line
from resequencer.record import Cut, Partition

P0, P1, P2 = (Partition("T", number) for number in range(3))
MARK = b"\xef\xbb\xbf"


def line(text: str) -> bytes:
    return encode_line(Line(b'{"a":"%b"}' % text.encode(), text.encode()))


@pytest.fixture
def write(settings):
    def append(number: int, data: bytes) -> None:
        settings.in_directory.mkdir(exist_ok=True)
        with open(settings.in_directory / f"partition-{number}.jsonl", "ab") as file:
            file.write(data)

    return append


def keys(polled) -> list[str]:
    return [record.key.decode() for record in polled.records]


def test_the_directory_is_made_when_it_is_missing(settings, waits):
    transport = FileTransport(settings, lambda ms, _: waits.append(ms))
    assert transport.assignment() == []
    assert settings.in_directory.is_dir()


def test_every_partition_file_is_assigned_also_new_ones(transport, write):
    write(1, b"")
    assert transport.assignment() == [P1]
    write(0, b"")
    write(10, b"")
    assert transport.assignment() == [P0, P1, Partition("T", 10)]


def test_other_files_are_ignored_and_told_once(transport, settings, caplog):
    names = [
        "partition-00.jsonl",
        "partition-1.json",
        "partition-x.jsonl",
        "notes.txt",
        "partition-1.jsonl.gz",
        "partition-٣.jsonl",
    ]
    for name in names:
        (settings.in_directory / name).touch()
    (settings.in_directory / "partition-7.jsonl").mkdir()
    assert transport.assignment() == []
    assert transport.assignment() == []
    assert transport._source.ignored == {*names, "partition-7.jsonl"}
    assert len(caplog.records) == len(names) + 1


def test_a_partition_is_read_only_once_it_was_sought(transport, write):
    write(0, line("a"))
    polled = transport.poll(10, 0)
    assert polled.records == ()
    assert polled.ends == {P0: len(line("a"))}
    transport.seek(P0, transport.start_offset(P0))
    assert keys(transport.poll(10, 0)) == ["a"]


def test_an_offset_is_where_a_line_starts_and_the_next_one_behind_its_end(transport, write):
    write(0, line("a") + b"\n\r\n" + line("b")[:-1] + b"\r\n")
    transport.seek(P0, 0)
    polled = transport.poll(10, 0)
    assert [record.origin.offset for record in polled.records] == [0, len(line("a")) + 3]
    assert polled.next_offsets == {P0: len(line("a") + line("b")) + 4} == polled.ends
    assert [record.defect for record in polled.records] == [None, None]


def test_a_byte_order_mark_counts_for_offsets_and_is_no_part_of_a_record(transport, write):
    write(0, MARK + line("a") + MARK + line("b") + MARK + b"\n" + MARK[:2] + line("c"))
    transport.seek(P0, 0)
    first, second, third = transport.poll(10, 0).records
    assert [(each.key, each.origin.offset, each.defect) for each in (first, second)] == [
        (b"a", 0, None),
        (b"b", len(MARK + line("a")), None),
    ]
    assert third.defect is not None
    assert third.value == MARK[:2] + line("c")[:-1]


def test_lines_of_blanks_are_no_records(transport, write):
    write(0, b" \n\t \r\n" + MARK + b" \n" + line("a"))
    transport.seek(P0, 0)
    assert keys(transport.poll(10, 0)) == ["a"]


def test_empty_lines_alone_move_the_position_without_a_record(transport, write, waits):
    write(0, b"\n\r\n\n")
    transport.seek(P0, 0)
    polled = transport.poll(10, 1_000)
    assert (polled.records, polled.next_offsets, waits) == ((), {P0: 4}, [])


def test_a_poll_brings_no_more_than_it_may_and_goes_on_where_it_stopped(transport, write):
    write(0, b"".join(line(str(each)) for each in range(10)))
    transport.seek(P0, 0)
    assert [keys(transport.poll(4, 0)) for _ in range(4)] == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9"], []]


def test_reading_begins_at_any_line(transport, write):
    write(0, line("a") + line("b"))
    transport.seek(P0, len(line("a")))
    assert keys(transport.poll(4, 0)) == ["b"]
    transport.seek(P0, 0)
    assert keys(transport.poll(4, 0)) == ["a", "b"]
    transport.seek(P0, len(line("a") + line("b")))
    assert keys(transport.poll(4, 0)) == []


def test_a_line_is_waited_for_until_its_end_came_whatever_its_parts(transport, write):
    whole = line("äöü€😀")
    transport_end = 0
    write(0, b"")
    transport.seek(P0, 0)
    for byte in whole[:-1]:
        write(0, bytes([byte]))
        polled = transport.poll(10, 0)
        assert (polled.records, polled.next_offsets, polled.ends) == ((), {}, {P0: transport_end})
    write(0, whole[-1:])
    assert keys(transport.poll(10, 0)) == ["äöü€😀"]


def test_a_writer_may_cut_its_torn_line_off_and_write_another(transport, write, settings):
    path = settings.in_directory / "partition-0.jsonl"
    write(0, line("a") + line("torn")[:-5])
    transport.seek(P0, 0)
    assert keys(transport.poll(10, 0)) == ["a"]
    os.truncate(path, len(line("a")))
    assert keys(transport.poll(10, 0)) == []
    write(0, line("b"))
    assert keys(transport.poll(10, 0)) == ["b"]


def test_another_line_in_the_place_of_a_torn_one_is_found_though_it_is_shorter(transport, write, settings):
    path = settings.in_directory / "partition-0.jsonl"
    write(0, line("a") + line("torn" * 20)[:-5])
    transport.seek(P0, 0)
    assert keys(transport.poll(10, 0)) == ["a"]
    os.truncate(path, len(line("a")))
    write(0, line("b"))
    assert keys(transport.poll(10, 0)) == ["b"]


def test_waiting_asks_for_pauses_and_never_for_longer_than_was_left(transport, write, waits):
    write(0, b"")
    transport.seek(P0, 0)
    assert transport.poll(10, 50).records == ()
    assert waits == [20, 20, 10]


def test_a_line_that_comes_while_a_poll_waits_ends_the_wait(settings, write):
    waited = []
    transport = FileTransport(settings, lambda ms, _: (waited.append(ms), write(0, line("a"))))
    write(0, b"")
    transport.seek(P0, 0)
    polled = transport.poll(10, 1_000)
    assert (keys(polled), waited, polled.ends) == (["a"], [20], {P0: len(line("a"))})


def test_a_backlog_in_one_partition_does_not_keep_the_others_waiting(transport, write):
    write(0, b"".join(line(f"a{each}") for each in range(1_000)))
    write(1, b"".join(line(f"b{each}") for each in range(3)))
    write(2, b"".join(line(f"c{each}") for each in range(1_000)))
    for partition in (P0, P1, P2):
        transport.seek(partition, 0)
    polled = transport.poll(90, 0)
    counts = {name: sum(key.startswith(name) for key in keys(polled)) for name in "abc"}
    assert counts["b"] == 3
    assert abs(counts["a"] - counts["c"]) <= 1
    assert sum(counts.values()) == 90


def test_one_record_at_a_time_is_taken_from_each_in_turn(transport, write):
    for number in range(3):
        write(number, b"".join(line(f"{number}") for _ in range(4)))
        transport.seek(Partition("T", number), 0)
    came = [keys(transport.poll(1, 0))[0] for _ in range(12)]
    assert sorted(came[:3]) == sorted(came[3:6]) == sorted(came[6:9]) == ["0", "1", "2"]


def test_records_keep_the_order_of_their_partition(transport, write):
    for number in range(3):
        write(number, b"".join(line(f"{number}-{each:03}") for each in range(100 * (number + 1))))
        transport.seek(Partition("T", number), 0)
    came = [key for _ in range(20) for key in keys(transport.poll(37, 0))]
    assert len(came) == 600
    for number in range(3):
        own = [key for key in came if key.startswith(f"{number}-")]
        assert own == sorted(own)


@pytest.mark.slow
def test_a_poll_is_bounded_in_bytes_too(transport, write):
    big = encode_line(Line(b'{"a":"%b"}' % (b"x" * 4_000_000)))
    write(0, big * 10)
    transport.seek(P0, 0)
    counts = []
    while count := len(transport.poll(500, 0).records):
        counts.append(count)
    assert counts == [5, 5]


def test_an_end_is_that_of_the_last_complete_line_before_the_records_were_read(settings, write):
    class Growing(SystemFiles):
        """Appends a line whenever the source reads a chunk."""

        grows = False

        def read(self, descriptor, size, offset):
            data = super().read(descriptor, size, offset)
            if self.grows:
                write(0, line("later"))
            return data

    files = Growing()
    transport = FileTransport(settings, lambda *_: None, files)
    write(0, line("a") + line("b")[:-3])
    transport.seek(P0, 0)
    files.grows = True
    first = transport.poll(10, 0)
    assert first.ends == {P0: len(line("a"))}
    assert first.next_offsets == first.ends


def test_reading_always_reaches_the_end_it_was_told(transport, write):
    write(0, b"".join(line(str(each)) for each in range(100)) + b"\n\n" + b"torn")
    transport.seek(P0, 0)
    first = transport.poll(30, 0)
    while polled := transport.poll(30, 0).next_offsets:
        last = polled
    assert last == first.ends


def test_an_end_is_found_behind_a_torn_line_of_many_blocks(transport, write):
    write(0, line("a") + b"x" * 1_000_000)
    assert transport.poll(10, 0).ends == {P0: len(line("a"))}
    write(0, b"x" * 1_000_000)
    assert transport.poll(10, 0).ends == {P0: len(line("a"))}
    write(0, b"\n")
    assert transport.poll(10, 0).ends == {P0: len(line("a")) + 2_000_001}


def test_looking_where_nothing_moved_reads_nothing(settings, write):
    class Counting(SystemFiles):
        reads = 0

        def read(self, descriptor, size, offset):
            self.reads += 1
            return super().read(descriptor, size, offset)

    files = Counting()
    transport = FileTransport(settings, lambda *_: None, files)
    write(0, line("a") + b"torn" * 100_000)
    transport.seek(P0, 0)
    transport.poll(10, 0)
    before = files.reads
    transport.poll(10, 5_000)
    assert files.reads == before


def test_a_line_that_is_no_record_is_one_with_its_bytes_and_the_reason(transport, write):
    write(0, line("a") + b'{"value": \xff}\n' + b"garbage \r\n" + line("b"))
    transport.seek(P0, 0)
    records = transport.poll(10, 0).records
    assert [record.value for record in records[1:3]] == [b'{"value": \xff}', b"garbage \r"]
    assert [bool(record.defect) for record in records] == [False, True, True, False]
    assert [record.cut for record in records] == [None] * 4


@given(contents=st.lists(st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")), max_size=6), batch=st.integers(1, 4))
def test_any_bytes_as_lines_give_exactly_one_record_each(tmp_path_factory, contents, batch):
    directory = tmp_path_factory.mktemp("any")
    (directory / "partition-0.jsonl").write_bytes(b"".join(content + b"\n" for content in contents))
    transport = FileTransport(FileSettings("T", directory, directory / "out"), lambda *_: None)
    transport.seek(P0, 0)
    records = [record for _ in range(8) for record in transport.poll(batch, 0).records]
    assert [record.value for record in records if record.defect] == [
        content for content in contents if content.removeprefix(MARK).strip(b" \t\r")
    ]
    transport.close()


def test_a_value_beyond_the_limit_is_cut_and_keeps_key_and_headers(settings, write):
    settings = FileSettings("T", settings.in_directory, settings.out_directory, max_value_bytes=1_000)
    value = b'{"a":"%b"}' % (b"x" * 2_000)
    write(0, encode_line(Line(b"{}", b"k")) + encode_line(Line(value, b"k", (("h", b"v"),))) + b"g" * 1_001 + b"\n")
    transport = FileTransport(settings, lambda *_: None)
    transport.seek(P0, 0)
    small, cut, garbage = transport.poll(10, 0).records
    assert small.cut is None
    assert (cut.key, cut.headers, cut.value) == (b"k", (("h", b"v"),), value[:1_000])
    assert cut.cut == Cut(len(value), hashlib.sha256(value).hexdigest())
    assert (garbage.value, garbage.cut.length) == (b"g" * 1_000, 1_001)
    assert garbage.defect


def test_a_line_beyond_the_limit_is_read_in_chunks_and_never_held_whole(settings, write):
    settings = FileSettings("T", settings.in_directory, settings.out_directory, max_value_bytes=100_000)
    block, digest = os.urandom(1_000_000).replace(b"\n", b"x"), hashlib.sha256()
    write(0, line("a"))
    for _ in range(100):
        write(0, block)
        digest.update(block)
    write(0, b"\n" + line("b"))
    transport = FileTransport(settings, lambda *_: None)
    transport.seek(P0, 0)
    records, polls = [], 0
    tracemalloc.start()
    while len(records) < 3:
        records += transport.poll(10, 0).records
        polls += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000
    assert polls >= 6
    long = records[1]
    assert long.cut == Cut(100_000_000, digest.hexdigest())
    assert long.value == block[:BEGINNING_BYTES]
    assert (long.origin.offset, long.key, long.defect) == (len(line("a")), None, None)
    assert records[2].key == b"b"


@pytest.mark.slow
def test_reading_resumes_in_the_middle_of_nothing_after_a_restart_within_an_overlong_line(settings, write):
    settings = FileSettings("T", settings.in_directory, settings.out_directory, max_value_bytes=10)
    write(0, line("a") + b"x" * 40_000_000 + b"\n")
    transport = FileTransport(settings, lambda *_: None)
    transport.seek(P0, 0)
    first = transport.poll(1, 0)
    second = transport.poll(10, 0)
    assert first.next_offsets == {P0: len(line("a"))}
    assert (second.records, second.next_offsets) == ((), {})
    restarted = FileTransport(settings, lambda *_: None)
    restarted.seek(P0, first.next_offsets[P0])
    records = [record for _ in range(4) for record in restarted.poll(10, 0).records]
    assert [record.cut.length for record in records] == [40_000_000]


@pytest.mark.slow
def test_a_large_backlog_is_read_in_flat_memory(settings, write):
    batch = b"".join(encode_line(Line(b'{"a":"%b"}' % (b"x" * 1_000), b"%d" % each)) for each in range(1_000))
    for _ in range(20):
        write(0, batch)
    transport = FileTransport(settings, lambda *_: None)
    transport.seek(P0, 0)
    count = 0
    tracemalloc.start()
    while records := transport.poll(500, 0).records:
        count += len(records)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 6_000_000


@pytest.mark.parametrize("offset", [1, 5, 10_000])
def test_an_offset_where_no_line_starts_is_refused(transport, write, offset):
    write(0, line("a") + line("b"))
    with pytest.raises(TransportRefused, match=rf"partition-0.jsonl.*position {offset}.*Restore the file"):
        transport.seek(P0, offset)


def test_a_partition_without_a_file_cannot_be_sought(transport):
    with pytest.raises(TransportRefused, match=r"partition-0.jsonl: there is no such file.*Put it back"):
        transport.seek(P0, 0)


def test_a_file_that_became_shorter_than_the_position_is_refused(transport, write, settings):
    write(0, line("a") + line("b"))
    write(1, line("c"))
    transport.seek(P0, 0)
    transport.seek(P1, 0)
    transport.poll(10, 0)
    os.truncate(settings.in_directory / "partition-0.jsonl", len(line("a")))
    size, position = len(line("a")), len(line("a") + line("b"))
    with pytest.raises(TransportRefused, match=rf"partition-0.jsonl: has {size} bytes .* position {position}.*Restore the file"):
        transport.poll(10, 0)


def test_lines_that_are_cut_off_before_they_were_taken_are_not_taken_from_memory(transport, write, settings):
    write(0, line("a") + line("b") + line("c"))
    transport.seek(P0, 0)
    assert keys(transport.poll(1, 0)) == ["a"]
    os.truncate(settings.in_directory / "partition-0.jsonl", len(line("a")))
    assert keys(transport.poll(10, 0)) == []
    write(0, line("d"))
    assert keys(transport.poll(10, 0)) == ["d"]


def rewrite(settings, data: bytes) -> None:
    """Write other content into the same file, as an editor or `cat new > file` does."""
    with open(settings.in_directory / "partition-0.jsonl", "wb") as file:
        file.write(data)


REWRITTEN = r"partition-0.jsonl: holds other bytes before position \d+ .*it was rewritten. Restore the file, or move it away"


def test_a_file_that_was_rewritten_in_place_while_it_is_read_is_refused_however_long_it_is(transport, write, settings):
    write(0, line("a") + line("b"))
    transport.seek(P0, 0)
    transport.poll(10, 0)
    rewrite(settings, line("c") + line("d") + line("e"))
    for _ in range(2):
        with pytest.raises(TransportRefused, match=REWRITTEN):
            transport.poll(10, 0)


def test_a_file_that_was_rewritten_in_place_meanwhile_is_refused_by_the_next_reader(transport, write, settings):
    write(0, line("a") + line("b"))
    transport.seek(P0, 0)
    polled = transport.poll(10, 0)
    offset, state = polled.next_offsets[P0], polled.source_states[P0]
    write(0, line("c"))
    again = FileTransport(settings, lambda *_: None)
    again.seek(P0, offset, state)
    assert keys(again.poll(10, 0)) == ["c"]
    rewrite(settings, line("x") + line("y") + line("z"))
    again = FileTransport(settings, lambda *_: None)
    with pytest.raises(TransportRefused, match=REWRITTEN):
        again.seek(P0, offset, state)
    (settings.in_directory / "partition-0.jsonl").rename(settings.in_directory / "partition-1.jsonl")
    again.seek(P1, 0)
    assert keys(again.poll(10, 0)) == ["x", "y", "z"]


@pytest.mark.parametrize("state", ["", "AAAA", "[1]", '[0,0,"x"]'])
def test_a_position_without_a_digest_gets_the_check_that_a_line_starts_there(transport, write, settings, state):
    write(0, line("a") + line("b"))
    transport.seek(P0, len(line("a")), state)
    assert keys(transport.poll(10, 0)) == ["b"]


def test_a_digest_is_of_the_bytes_that_were_read_and_not_of_what_stands_there_afterwards(settings, write):
    """The file is rewritten between a read of a poll and the end of that poll."""

    class Rewritten(SystemFiles):
        def read(self, descriptor: int, size: int, offset: int) -> bytes:
            data = super().read(descriptor, size, offset)
            if is_armed and data.endswith(b"\n") and len(data) > len(line("a")):
                rewrite(settings, line("x") + line("y") + line("z"))
            return data

    is_armed = False
    write(0, line("a") + line("b"))
    transport = FileTransport(settings, lambda *_: None, Rewritten())
    transport.seek(P0, 0)
    transport.end_offset(P0)
    is_armed = True
    polled = transport.poll(10, 0)
    is_armed = False
    assert keys(polled) == ["a", "b"]
    with pytest.raises(TransportRefused, match=REWRITTEN):
        FileTransport(settings, lambda *_: None).seek(P0, polled.next_offsets[P0], polled.source_states[P0])


@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 4_096))
@example([3, 1_200_000, 5], 1, 4_096)  # The second is read in pieces.
def test_any_byte_of_the_last_block_before_a_position_is_compared_whatever_the_lines(tmp_path_factory, lengths, batch, back):
    directory = tmp_path_factory.mktemp("in")
    path, content = directory / "partition-0.jsonl", b"".join(b"x" * length + b"\n" for length in lengths)
    settings = FileSettings("T", directory, directory / "out", max_value_bytes=1_000)
    path.write_bytes(content)
    transport = FileTransport(settings, lambda *_: None)
    transport.seek(P0, 0)
    while (polled := transport.poll(batch, 0)).next_offsets:
        offset, state = polled.next_offsets[P0], polled.source_states[P0]
        FileTransport(settings, lambda *_: None).seek(P0, offset, state)
    changed = bytearray(content)
    at = max(0, offset - 1 - back)
    changed[at] ^= 1
    path.write_bytes(changed)
    if at < offset - 1:
        with pytest.raises(TransportRefused, match="it was rewritten"):
            FileTransport(settings, lambda *_: None).seek(P0, offset, state)


def test_another_file_in_its_place_is_refused_however_long_it_is(transport, write, settings):
    write(0, line("a"))
    transport.seek(P0, 0)
    transport.poll(10, 0)
    other = settings.in_directory / "other"
    other.write_bytes(line("a") * 10)
    other.replace(settings.in_directory / "partition-0.jsonl")
    with pytest.raises(
        TransportRefused, match=r"partition-0.jsonl: was replaced by .* \d+ bytes.*position \d+.*Restore the file"
    ):
        transport.poll(10, 0)


def test_a_file_that_went_away_is_no_longer_assigned_and_goes_on_when_it_is_back(transport, write, settings):
    path = settings.in_directory / "partition-0.jsonl"
    write(0, line("a"))
    transport.seek(P0, 0)
    assert keys(transport.poll(10, 0)) == ["a"]
    path.rename(settings.in_directory / "away")
    assert transport.assignment() == []
    assert transport.poll(10, 0).ends == {}
    (settings.in_directory / "away").rename(path)
    write(0, line("b"))
    assert keys(transport.poll(10, 0)) == ["b"]


def test_what_was_read_before_the_disk_failed_is_handed_over_first(settings, write):
    class Failing(SystemFiles):
        """Fails to read chunks of the second partition, but not the smaller read that looks for its end."""

        inode: int | None = None

        def read(self, descriptor, size, offset):
            if os.fstat(descriptor).st_ino == self.inode and size > 100_000:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(descriptor, size, offset)

    files = Failing()
    lines = [f"{each:04}" for each in range(5_000)]
    for number in (0, 1):
        write(number, b"".join(line(each) for each in lines))
    transport = FileTransport(settings, lambda *_: None, files)
    transport.seek(P0, 0)
    transport.seek(P1, 0)
    files.inode = os.stat(settings.in_directory / "partition-1.jsonl").st_ino
    came, refusals = [], 0
    while len(came) < 5_000:
        try:
            came += keys(transport.poll(1_000, 0))
        except TransportUnavailable:
            refusals += 1
    assert came == lines
    assert refusals <= 11
    with pytest.raises(TransportUnavailable, match=r"partition-1.jsonl: EIO"):
        transport.poll(1_000, 0)
    files.inode = None
    assert [key for _ in range(5) for key in keys(transport.poll(1_000, 0))] == lines


def test_a_file_that_may_not_be_read_is_refused(settings, write):
    class Denied(SystemFiles):
        def open(self, path, flags):
            raise PermissionError(errno.EACCES, "Permission denied")

    write(0, line("a"))
    with pytest.raises(TransportRefused, match=r"partition-0.jsonl: EACCES.*readable"):
        FileTransport(settings, lambda *_: None, Denied()).poll(10, 0)
