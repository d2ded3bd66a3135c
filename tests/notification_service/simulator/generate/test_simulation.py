import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Line, decode_line, partition_of
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.simulator.generate.garbage import KINDS, TOO_LARGE
from notification_service.simulator.generate.pain001 import Pain001Refused
from notification_service.simulator.generate.plan import Numbering, Plan
from notification_service.simulator.generate.simulation import simulate
from resequencer.record import Origin, Partition, Record

DECODER = EnvelopeDecoder(DecodingSettings(needs_sequence=True))
ROUGH = {"numbering": Numbering.MIXED, "duplicates": 0.1, "losses": 0.05, "late": 0.05, "garbage": 0.05, "window": 100}
CALM = {"duplicates": 0, "losses": 0, "late": 0, "garbage": 0}


def envelopes(partition: bytes) -> list[DataEnvelope]:
    """Return the envelopes of the lines that can be decoded, in order."""
    decoded = []
    for line in partition.splitlines():
        read = decode_line(line)
        if isinstance(read, Line):
            decoded.append(DECODER.decode(Record(Origin(Partition("in", 0), 0), read.value, read.key, read.headers)))
    return [each for each in decoded if isinstance(each, DataEnvelope)]


def test_the_same_seed_writes_the_same_bytes(run: Callable):
    one, other = run("one", **ROUGH), run("other", **ROUGH)
    assert one.partition() == other.partition()
    assert one.expected_lines == other.expected_lines
    assert one.summary == other.summary
    assert run("third", **(ROUGH | {"seed": 8})).partition() != one.partition()


def test_what_a_seed_writes_does_not_change_with_the_version(run: Callable):
    """A user may have noted a seed. (A change of the sample files changes these digests, too.)"""
    rough = run(units=300, **(ROUGH | {"garbage": 0}))
    digests = [sha256(each).hexdigest()[:24] for each in (rough.partition(), b"\n".join(rough.expected_lines) + b"\n")]
    assert digests == ["42386c9f58cc61b0c01d47d8", "2db702c41f62c1cd9bf2e8b1"]


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_another_process_with_another_hash_seed_writes_the_same_bytes(run: Callable, tmp_path: Path, hash_seed: str):
    here = run("here", **ROUGH)
    program = (
        "from pathlib import Path; from notification_service.simulator.generate.plan import Plan\n"
        "from notification_service.simulator.generate.simulation import simulate\n"
        f"plan = Plan(**({{'units': 60, 'seed': 7}} | {ROUGH | {'numbering': 'mixed'}!r}))\n"
        f"there = Path({str(tmp_path / 'there')!r})\n"
        "simulate(plan, there / 'in', there / 'expected.jsonl', lambda done, of: None, lambda ms: None)\n"
    ).replace("'mixed'", "__import__('notification_service.simulator.generate.plan', fromlist=['Numbering']).Numbering.MIXED")
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=Path(__file__).parents[4])
    assert (tmp_path / "there" / "in" / "partition-0.jsonl").read_bytes() == here.partition()
    assert (tmp_path / "there" / "expected.jsonl").read_bytes().splitlines() == here.expected_lines


def test_a_calm_simulation_writes_every_envelope_once(run: Callable):
    calm = run(units=100, **CALM)
    expected = sorted((unit.unit, each.envelope_id) for unit in calm.units for each in unit.envelopes)
    assert sorted((each.unit, each.envelope_id) for each in envelopes(calm.partition())) == expected
    assert calm.summary.lines == calm.summary.envelopes == len(expected)
    assert len(calm.units) == calm.summary.units == 100


def test_expectations_agree_with_what_is_written(run: Callable):
    rough = run(units=150, **ROUGH)
    written = Counter((each.unit, each.envelope_id) for each in envelopes(rough.partition()))
    for unit in rough.units:
        for each in unit.envelopes:
            assert written.pop((unit.unit, each.envelope_id), 0) == (0 if each.is_lost else 1 + each.duplicates)
    assert not written


def test_arrivals_are_expected_as_they_are_written(run: Callable):
    rough = run(units=150, **ROUGH)
    first: dict[str, list[str]] = {}
    for each in envelopes(rough.partition()):
        ids = first.setdefault(each.unit, [])
        if each.envelope_id not in ids:
            ids.append(each.envelope_id)
    for unit in rough.units:
        sent = sorted((each for each in unit.envelopes if not each.is_lost), key=lambda each: each.arrived)
        assert [each.arrived for each in sent] == list(range(1, len(sent) + 1))
        assert [each.envelope_id for each in sent] == first.get(unit.unit, [])


def test_duplicates_are_the_same_bytes(run: Callable):
    lines = Counter(run(**(CALM | {"duplicates": 1.0})).partition().splitlines())
    assert set(lines.values()) == {2}


@pytest.mark.slow
def test_the_rates_are_honoured(run: Callable):
    summary = run(units=1_000, **ROUGH).summary
    envelopes = summary.envelopes
    assert summary.lost == pytest.approx(0.05 * envelopes, rel=0.2)
    assert summary.late == pytest.approx(0.05 * envelopes, rel=0.2)
    assert summary.duplicates == pytest.approx(0.1 * (envelopes - summary.lost), rel=0.2)
    assert summary.garbage == pytest.approx(0.05 * summary.lines, rel=0.2)
    assert summary.lines == envelopes - summary.lost + summary.duplicates + summary.garbage
    assert summary.out_of_order > 0.2 * envelopes


def test_without_disorder_every_unit_arrives_in_order(run: Callable):
    assert run(units=200, window=0, **CALM).summary.out_of_order == 0


def test_late_lines_follow_after_the_pause(tmp_path: Path):
    plan = Plan(units=100, seed=3, late=0.2, duplicates=0, garbage=0, losses=0, late_after_ms=4_711)
    partition = tmp_path / "in" / "partition-0.jsonl"
    paused: list[tuple[int, bytes]] = []

    def pause(pause_ms: int) -> None:
        paused.append((pause_ms, partition.read_bytes()))

    summary = simulate(plan, tmp_path / "in", tmp_path / "expected.jsonl", lambda done, of: None, pause)
    [(pause_ms, before)] = paused
    after = partition.read_bytes()
    assert pause_ms == 4_711
    assert after.startswith(before)
    assert after[len(before) :].count(b"\n") == summary.late > 0


def test_without_late_lines_there_is_no_pause(tmp_path: Path):
    def pause(pause_ms: int) -> None:
        raise AssertionError("paused")

    simulate(Plan(units=5, seed=3, late=0), tmp_path / "in", tmp_path / "expected.jsonl", lambda done, of: None, pause)


def test_garbage_of_every_kind_is_written_before_any_comes_again(run: Callable):
    kinds = [each.kind for each in run(units=60, max_value_bytes=30_000, **ROUGH).garbage]
    assert {*kinds[: len(KINDS) + 1]} == {*KINDS, TOO_LARGE}


def test_garbage_is_expected_where_it_was_written(run: Callable):
    rough = run(units=300, partitions=3, **ROUGH)
    assert len(rough.garbage) == rough.summary.garbage > 20
    for each in rough.garbage:
        rest = rough.partition(each.partition)[each.offset :]
        assert each.offset == 0 or rough.partition(each.partition)[each.offset - 1 : each.offset] == b"\n"
        assert b"-garbage-" in rest.partition(b"\n")[0] or each.kind in (
            "broken-utf8",
            "cut-off",
            "no-json",
            "no-record",
            "other-shape",
        )


def test_a_unit_lies_in_the_partition_of_its_key(run: Callable):
    rough = run(units=100, partitions=4, **ROUGH)
    for number in range(4):
        found = {each.unit for each in envelopes(rough.partition(number))}
        assert found
        assert {partition_of(unit.encode(), 4) for unit in found} == {number}
    assert {unit.partition for unit in rough.units} == {0, 1, 2, 3}


def test_a_second_simulation_is_appended(run: Callable):
    alone = run("alone", seed=2)
    first = run("both", seed=1).partition()
    both = run("both", seed=2)
    assert both.partition() == first + alone.partition()
    assert len(both.units) == 120


def test_a_line_without_its_end_is_not_lengthened(tmp_path: Path):
    (tmp_path / "partition-0.jsonl").write_bytes(b'{"key": "an unfinished')
    with pytest.raises(TransportRefused, match="no end"):
        simulate(Plan(units=5, seed=3), tmp_path, tmp_path / "expected.jsonl", lambda done, of: None, lambda ms: None)
    assert (tmp_path / "partition-0.jsonl").read_bytes() == b'{"key": "an unfinished'


def test_a_file_that_is_no_pain001_is_refused_before_anything_is_written(tmp_path: Path):
    bad = tmp_path / "bad.xml"
    bad.write_text("<a/>")
    plan = Plan(units=5, seed=3, pain001=(bad,))
    with pytest.raises(Pain001Refused):
        simulate(plan, tmp_path / "in", tmp_path / "expected.jsonl", lambda done, of: None, lambda ms: None)
    assert list(tmp_path.iterdir()) == [bad]


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportRefused):
        simulate(Plan(units=5, seed=3), tmp_path / "file", tmp_path / "expected", lambda done, of: None, lambda ms: None)


def test_progress_ends_with_all_units(tmp_path: Path):
    progress: list[tuple[int, int]] = []
    simulate(Plan(units=40, seed=3), tmp_path / "in", tmp_path / "e", lambda *each: progress.append(each), lambda ms: None)
    assert progress[-1] == (40, 40)
    assert progress == sorted(progress)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_units(tmp_path: Path):
    def peak(units: int) -> int:
        tracemalloc.start()
        target = tmp_path / str(units)
        simulate(Plan(units=units, seed=3), target / "in", target / "e", lambda done, of: None, lambda ms: None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    few = peak(150)
    assert peak(600) < few * 1.5 + 200_000


def test_every_real_file_that_is_valid_can_be_simulated(run: Callable, shared_samples: Path):
    files = [path for path in sorted((shared_samples / "pain.001").glob("*.xml")) if "invalid" not in path.stem]
    for number, path in enumerate(files):
        calm = run(f"run-{number}", units=20, pain001=(path,), **CALM)
        assert len(envelopes(calm.partition())) == calm.summary.envelopes
        assert all(unit.end_to_end_id for unit in calm.units)


def test_expectations_are_lines_of_json_that_say_what_they_are(run: Callable):
    rough = run(**ROUGH)
    assert {msgspec.json.decode(line)["type"] for line in rough.expected_lines} == {"unit", "garbage"}


def test_a_full_disk_is_refused_and_named(tmp_path: Path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    plan = Plan(units=50, seed=3)
    with pytest.raises(TransportRefused, match="No space left"):
        simulate(plan, tmp_path / "in", Path("/dev/full"), lambda done, of: None, lambda ms: None)
