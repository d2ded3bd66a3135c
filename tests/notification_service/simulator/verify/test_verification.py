from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guardian.ports import TransportRefused
from notification_service.connectors.files.rotated_names import rotated_path
from notification_service.simulator.generate.plan import Flows, Numbering
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation, Verdict, render_json, render_text
from notification_service.simulator.verify.verification import verify, verify_files

SEQUENCE = Rules("SEQUENCE")
STRICT = Rules("STRICT_SEQUENCE")
FULL = Rules("FULL_PAIN001")
CUSTOM = Rules("FULL_PAIN001_AND_CUSTOM_DATA", custom_data_keys=("BusinessData",))
PDS = Rules("FULL_PAIN001_AND_PDS_DATA", pds_data_keys=("pdsBusinessData",))
CALM: dict[str, Any] = {"losses": 0, "late": 0, "garbage": 0, "duplicates": 0}
ROUGH: dict[str, Any] = {"losses": 0.05, "late": 0.05, "garbage": 0.02, "duplicates": 0.05}


def edited(line: bytes, edit: Callable[[dict], Any]) -> bytes:
    read = msgspec.json.decode(line)
    edit(read)
    return msgspec.json.encode(read)


def header(line: bytes, name: str) -> str | None:
    return msgspec.json.decode(line)["headers"].get(name)


def found(verdict: Verdict) -> dict[Deviation, int]:
    return {deviation: count for deviation, count in verdict.counts if count}


class Judged:
    """Faultless output that a test changes before it is verified."""

    def __init__(self, run: Any, output: Any, rules: Rules) -> None:
        self.run = run
        self.rules = rules
        self.notifications: list[bytes] = list(output.notifications)
        self.dead_letters: list[bytes] = list(output.dead_letters)

    def verdict(self) -> Verdict:
        return verify(self.rules, self.run.expected_lines, self.notifications, self.dead_letters)

    def found(self) -> dict[Deviation, int]:
        return found(self.verdict())


@pytest.fixture
def judged(known_run: Callable, faultless: Callable) -> Callable[..., Judged]:
    def judged(rules: Rules = SEQUENCE, **fields: Any) -> Judged:
        simulated = known_run(**fields)
        return Judged(simulated, faultless(simulated, rules), rules)

    return judged


@pytest.mark.parametrize(
    ("rules", "numbering"),
    [
        (SEQUENCE, Numbering.SHARED),
        (SEQUENCE, Numbering.MIXED),
        (STRICT, Numbering.SEPARATE),
        (FULL, Numbering.MIXED),
        (CUSTOM, Numbering.MIXED),
        (PDS, Numbering.MIXED),
        (Rules("my.own:Strategy"), Numbering.SHARED),
    ],
    ids=lambda each: getattr(each, "strategy", each),
)
@pytest.mark.parametrize("rates", [CALM, ROUGH], ids=["calm", "rough"])
def test_a_faultless_output_is_accepted(judged: Callable, rules: Rules, numbering: Numbering, rates: dict):
    verdict = judged(rules, units=150, numbering=numbering, **rates).verdict()
    assert verdict.examples == ()
    assert verdict.is_good
    assert verdict.units == 150


def test_a_strict_strategy_on_one_numbering_may_strand_what_waits(judged: Callable):
    output = judged(STRICT, flows=Flows.TWO, **CALM)
    output.notifications = [
        edited(each, lambda read: read["headers"].update(incomplete="sequence:1")) for each in output.notifications
    ]
    assert output.found() == {}


def test_a_notification_that_is_not_there_is_lost(judged: Callable):
    output = judged(**CALM)
    del output.notifications[10]
    assert output.found() == {Deviation.LOST: 1}


def test_no_output_at_all_is_everything_lost(judged: Callable):
    output = judged(**CALM)
    output.notifications = []
    assert output.found() == {Deviation.LOST: output.run.summary.notifications}


def test_a_notification_that_comes_again_is_doubled_unless_it_says_so(judged: Callable):
    output = judged(**CALM)
    again = output.notifications[10]
    output.notifications.append(edited(again, lambda read: read["headers"].update({"possible-duplicate": "true"})))
    assert output.found() == {}
    output.notifications.append(again)
    assert output.found() == {Deviation.DOUBLED: 1}


@pytest.mark.parametrize("rules", [SEQUENCE, FULL], ids=lambda rules: rules.strategy)
def test_two_notifications_the_wrong_way_round_are_out_of_order(judged: Callable, rules: Rules):
    output = judged(rules, **CALM)
    lines = output.notifications
    at = next(
        at
        for at in range(len(lines) - 1)
        if header(lines[at], "event-name") == "PaymentSettled" and header(lines[at + 1], "event-name") == "PaymentCompleted"
    )
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    assert output.found() == {Deviation.OUT_OF_ORDER: 1}


def test_order_within_a_flow_is_judged_by_the_strict_strategy(judged: Callable):
    output = judged(STRICT, numbering=Numbering.SEPARATE, flows=Flows.TWO, **CALM)
    key = msgspec.json.decode(output.notifications[0])["key"]
    own = [each for each in output.notifications if msgspec.json.decode(each)["key"] == key]
    rest = output.notifications[len(own) :]
    fraud = [each for each in own if header(each, "process-flow-name") == "FraudCheckFlow"]
    main = [each for each in own if each not in fraud]
    output.notifications = fraud + main + rest
    assert Deviation.OUT_OF_ORDER not in output.found()
    output.notifications = [main[0], main[2], main[1], *main[3:], *fraud, *rest]
    assert output.found() == {Deviation.OUT_OF_ORDER: 1}


def test_two_numberings_are_judged_by_sequence_only_where_each_flow_arrived_in_order(judged: Callable):
    fields = {"numbering": Numbering.SEPARATE, "flows": Flows.TWO, **CALM}
    kept, disturbed = judged(window=0, **fields), judged(window=2_000, **fields)
    for each in (kept, disturbed):
        each.notifications.reverse()
    assert kept.found()[Deviation.OUT_OF_ORDER] > 100
    assert disturbed.found().get(Deviation.OUT_OF_ORDER, 0) < kept.found()[Deviation.OUT_OF_ORDER] / 10


def test_what_had_waited_leaves_in_order_of_arrival_with_a_gathering_strategy(judged: Callable):
    """The ideal output of a sequence strategy is not that of a gathering strategy."""
    by_sequence = judged(SEQUENCE, **CALM)
    by_sequence.rules = FULL
    assert set(by_sequence.found()) == {Deviation.OUT_OF_ORDER}


def set_in_report(*path: Any) -> Callable[[dict], None]:
    *tags, value = path

    def edit(read: dict) -> None:
        node = read["value"]["CstmrPmtStsRpt"]
        for tag in tags[:-1]:
            node = node[tag]
        node[tags[-1]] = value

    return edit


TRANSACTION = ("OrgnlPmtInfAndSts", 0, "TxInfAndSts", 0)


COMPLETED, REJECTED = "PaymentCompleted", "PaymentRejected"


@pytest.mark.parametrize(
    ("event", "edit"),
    [
        (COMPLETED, set_in_report(*TRANSACTION, "TxSts", "PART")),
        (COMPLETED, set_in_report(*TRANSACTION, "OrgnlEndToEndId", "of another payment")),
        (COMPLETED, set_in_report(*TRANSACTION, "OrgnlEndToEndId", None)),
        (COMPLETED, set_in_report(*TRANSACTION, "StsRsnInf", {"Rsn": {"Prtry": "XX99"}})),
        (COMPLETED, set_in_report("OrgnlGrpInfAndSts", "OrgnlMsgId", "NOTPROVIDED")),
        (COMPLETED, set_in_report("OrgnlGrpInfAndSts", "OrgnlMsgId", "of another message")),
        (COMPLETED, set_in_report("OrgnlPmtInfAndSts", 0, "OrgnlPmtInfId", "of another instruction")),
        (COMPLETED, set_in_report("GrpHdr", "MsgId", "ANOTHER")),
        (COMPLETED, lambda read: read["headers"].update({"envelope-id": "another"})),
        (COMPLETED, lambda read: read["headers"].update({"event-name": "PaymentWithdrawn"})),
        (COMPLETED, lambda read: read["headers"].update({"process-flow-name": "AnotherFlow"})),
        (COMPLETED, lambda read: read["headers"].update({"source-position": "nowhere"})),
        (COMPLETED, lambda read: read["headers"].update({"source-position": "IPF_PROCESSING_DATA-3@1"})),
        (COMPLETED, lambda read: read.update(value="no report")),
        (COMPLETED, lambda read: read.update(value={"report": 17})),
        (COMPLETED, lambda read: read.update(value="<broken")),
        (REJECTED, set_in_report(*TRANSACTION, "StsRsnInf", [])),
    ],
)
def test_what_a_notification_says_wrongly_is_found(judged: Callable, event: str, edit: Callable):
    output = judged(units=120, **CALM)
    at = next(at for at, each in enumerate(output.notifications) if header(each, "event-name") == event)
    output.notifications[at] = edited(output.notifications[at], edit)
    assert output.found() == {Deviation.WRONG_CONTENT: 1}


def test_a_notification_under_another_key_is_lost_there_and_unexpected_here(judged: Callable):
    output = judged(**CALM)
    output.notifications[3] = edited(output.notifications[3], lambda read: read.update(key="another-unit"))
    assert output.found() == {Deviation.LOST: 1, Deviation.UNEXPECTED: 1}


def test_expectations_of_another_run_are_called_so(judged: Callable, known_run: Callable):
    one = judged(units=20, **CALM)
    one.run = known_run(units=30, seed=4711, **CALM)
    verdict = one.verdict()
    assert (verdict.units, verdict.found_units, verdict.other_units) == (30, 0, 20)
    text = render_text(verdict)
    assert "The expectations are of another run: the output has none of their units, but 20 units that they do not name." in text


def test_output_of_a_second_run_is_called_so(judged: Callable):
    one, other = judged(units=20, **CALM), judged(units=10, seed=4711, **CALM)
    one.notifications += other.notifications
    verdict = one.verdict()
    assert (verdict.found_units, verdict.other_units) == (20, 10)
    assert "The output also has 10 units of another run, or of a simulation that was interrupted." in render_text(verdict)


def test_a_notification_of_a_lost_envelope_is_unexpected(judged: Callable):
    output = judged(**(CALM | {"losses": 0.1}))
    lost = {p.notification_id for u in output.run.units for e in u.envelopes if e.is_lost for p in e.processes} - {None}
    output.notifications[0] = edited(output.notifications[0], lambda read: read["headers"].update({"notification-id": min(lost)}))
    assert Deviation.UNEXPECTED in output.found()


@pytest.mark.parametrize("mark", ["incomplete", "late"])
def test_a_mark_without_a_cause_is_found(judged: Callable, mark: str):
    for rules in (SEQUENCE, FULL):
        output = judged(rules, **CALM)
        output.notifications[5] = edited(output.notifications[5], lambda read: read["headers"].update({mark: "sequence:1"}))
        assert output.found() == {Deviation.FALSELY_MARKED: 1}


def test_late_without_a_later_one_before_it_is_found_also_where_something_was_lost(judged: Callable):
    for rules, numbering in ((SEQUENCE, Numbering.SHARED), (SEQUENCE, Numbering.SEPARATE), (STRICT, Numbering.SEPARATE)):
        output = judged(rules, units=120, numbering=numbering, **(CALM | {"losses": 0.1}))
        at = next(
            at
            for at, each in enumerate(output.notifications)
            if header(each, "event-name") == "PaymentReceived" and header(each, "incomplete") is None
        )
        output.notifications[at] = edited(output.notifications[at], lambda read: read["headers"].update(late="true"))
        assert output.found() == {Deviation.FALSELY_MARKED: 1}, (rules, numbering)


def test_where_order_is_not_promised_what_follows_a_later_one_of_its_flow_must_say_so(judged: Callable):
    output = judged(SEQUENCE, numbering=Numbering.SEPARATE, flows=Flows.TWO, window=2_000, **CALM)
    lines = output.notifications
    at = next(
        at
        for at in range(len(lines) - 1)
        if header(lines[at], "event-name") == "PaymentSettled" and header(lines[at + 1], "event-name") == "PaymentCompleted"
    )
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    assert output.found() == {Deviation.NOT_MARKED: 1}
    lines[at + 1] = edited(lines[at + 1], lambda read: read["headers"].update(late="true"))
    assert output.found() == {}


@pytest.mark.slow
def test_a_service_marks_what_follows_a_later_one_of_a_flow_that_counts_by_itself(served: Callable):
    service = served("SEQUENCE")
    service.simulate(numbering=Numbering.SEPARATE, flows=Flows.TWO, window=2_000, **CALM)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert verdict.late > 50


def test_what_follows_a_lost_number_must_say_so(judged: Callable):
    output = judged(**(CALM | {"losses": 0.05}))
    at = next(at for at, each in enumerate(output.notifications) if header(each, "incomplete"))
    output.notifications[at] = edited(output.notifications[at], lambda read: read["headers"].pop("incomplete"))
    assert output.found() == {Deviation.NOT_MARKED: 1}


def test_what_is_released_without_a_part_must_name_it(judged: Callable):
    output = judged(FULL, units=120, **(CALM | {"losses": 0.1}))
    at = next(at for at, each in enumerate(output.notifications) if header(each, "incomplete"))
    output.notifications[at] = edited(output.notifications[at], lambda read: read["headers"].update(incomplete="sequence:1"))
    assert output.found() == {Deviation.NOT_MARKED: 1}


def test_before_a_part_is_known_its_reference_may_be_missing_but_never_another(judged: Callable):
    output = judged(SEQUENCE, units=120, **CALM)
    unit = next(u for u in output.run.units if "PAIN_001_PAYMENT_TRANSACTION" not in u.envelopes[0].parts)
    at = next(at for at, each in enumerate(output.notifications) if msgspec.json.decode(each)["key"] == unit.unit)
    missing = edited(output.notifications[at], set_in_report(*TRANSACTION, "OrgnlEndToEndId", None))
    output.notifications[at] = missing
    assert output.found() == {}
    output.notifications[at] = edited(missing, set_in_report(*TRANSACTION, "OrgnlEndToEndId", "of another"))
    assert output.found() == {Deviation.WRONG_CONTENT: 1}


def test_a_value_that_is_no_report_is_not_read_where_none_is_configured(judged: Callable):
    output = judged(Rules("SEQUENCE", target_type="package.module:callable"), **CALM)
    output.notifications = [edited(each, lambda read: read.update(value="anything")) for each in output.notifications]
    assert output.found() == {}


@pytest.mark.parametrize("line", [b"torn", b"[]", b'{"key": "unit", "value": {}}'])
def test_an_output_line_that_cannot_be_read_is_found(judged: Callable, line: bytes):
    output = judged(**CALM)
    output.notifications.append(line)
    assert output.found() == {Deviation.UNREADABLE: 1}


@pytest.mark.slow
def test_dead_letters_are_compared_with_the_garbage(judged: Callable):
    whole = judged(units=150, **(CALM | {"garbage": 0.05}))
    assert whole.found() == {}
    letters = whole.dead_letters
    whole.dead_letters = letters[1:]
    assert whole.found() == {Deviation.DEAD_LETTER_MISSING: 1}
    whole.dead_letters = [*letters, letters[0]]
    assert whole.found() == {Deviation.DEAD_LETTER_DOUBLED: 1}
    whole.dead_letters = [edited(letters[0], lambda read: read["headers"].update({"dead-letter-reason": "other"})), *letters[1:]]
    assert whole.found() == {Deviation.DEAD_LETTER_WRONG_REASON: 1}
    stray = edited(letters[0], lambda read: read["headers"].update({"dead-letter-source-position": "in-0@999999999"}))
    whole.dead_letters = [*letters, stray]
    assert whole.found() == {Deviation.DEAD_LETTER_UNEXPECTED: 1}
    whole.dead_letters = [*letters, b"torn"]
    assert whole.found() == {Deviation.UNREADABLE: 1}


def test_a_dead_letter_may_come_again_marked_and_also_before_the_one_that_is_not(judged: Callable):
    whole = judged(units=150, **(CALM | {"garbage": 0.05}))
    whole.dead_letters.insert(
        0, edited(whole.dead_letters[0], lambda read: read["headers"].update({"possible-duplicate": "true"}))
    )
    assert whole.found() == {}
    whole.dead_letters.append(whole.dead_letters[1])
    assert whole.found() == {Deviation.DEAD_LETTER_DOUBLED: 1}


def test_one_that_was_requeued_and_died_again_deviates_from_nothing_unless_it_does_so_twice(judged: Callable):
    whole = judged(units=150, **(CALM | {"garbage": 0.05}))
    again = {"requeued-from": "1", "dead-letter-source-position": "in-0@999999999"}
    requeued = edited(whole.dead_letters[0], lambda read: read["headers"].update(again))
    whole.dead_letters.append(requeued)
    assert whole.found() == {}
    assert whole.verdict().dead_letters == len(whole.dead_letters)
    whole.dead_letters.append(requeued)
    assert whole.found() == {Deviation.DEAD_LETTER_DOUBLED: 1}


def test_a_wrong_sequence_need_not_be_a_dead_letter_where_nothing_is_ordered_by_it(judged: Callable):
    whole = judged(FULL, units=150, **(CALM | {"garbage": 0.05}))
    whole.dead_letters = [each for each in whole.dead_letters if "sequence" not in (header(each, "dead-letter-reason") or "")]
    assert whole.found() == {}
    whole.rules = SEQUENCE
    assert whole.found()[Deviation.DEAD_LETTER_MISSING] > 5


def test_a_unit_that_was_simulated_twice_counts_once(judged: Callable):
    twice = judged(**CALM)
    verdict = verify(SEQUENCE, twice.run.expected_lines * 2, twice.notifications, [])
    assert verdict.is_good
    assert verdict.units == 60


def test_a_damaged_expectation_is_refused(judged: Callable):
    with pytest.raises(TransportRefused, match="line 2 is damaged"):
        verify(SEQUENCE, [judged(**CALM).run.expected_lines[0], b"{}"], [], [])


def test_files_are_verified_and_a_torn_last_line_is_not_there_yet(judged: Callable, tmp_path: Path):
    whole = judged(**ROUGH)
    out = tmp_path / "notifications.jsonl"
    out.write_bytes(b"\n".join(whole.notifications) + b'\n{"key": "to')
    letters = tmp_path / "dead-letters.jsonl"
    letters.write_bytes(b"".join(each + b"\n" for each in whole.dead_letters))
    assert verify_files(SEQUENCE, whole.run.directory / "expected.jsonl", out, letters).is_good
    out.write_bytes(b"\n".join(whole.notifications))
    assert found(verify_files(SEQUENCE, whole.run.directory / "expected.jsonl", out, letters)) == {Deviation.LOST: 1}


def test_what_was_rotated_is_verified_with_what_was_not(judged: Callable, tmp_path: Path):
    whole = judged(**ROUGH)
    out, letters = tmp_path / "notifications.jsonl", tmp_path / "dead-letters.jsonl"
    for path, lines in ((out, whole.notifications), (letters, whole.dead_letters)):
        parts = [lines[: len(lines) // 3], lines[len(lines) // 3 : -1], lines[-1:]]
        for number, part in enumerate(parts, 9):
            (path if number == 11 else rotated_path(path, number)).write_bytes(b"".join(each + b"\n" for each in part))
    assert verify_files(SEQUENCE, whole.run.directory / "expected.jsonl", out, letters).is_good
    rotated_path(out, 9).unlink()
    assert Deviation.LOST in found(verify_files(SEQUENCE, whole.run.directory / "expected.jsonl", out, letters))


def test_output_that_was_never_written_is_empty_but_expectations_must_be_there(known_run: Callable, tmp_path: Path):
    nowhere = tmp_path / "nowhere"
    verdict = verify_files(SEQUENCE, known_run(**CALM).directory / "expected.jsonl", nowhere, nowhere)
    assert set(found(verdict)) == {Deviation.LOST}
    with pytest.raises(TransportRefused, match="nowhere"):
        verify_files(SEQUENCE, nowhere, nowhere, nowhere)


def test_a_verdict_counts_all_and_shows_the_first_few(judged: Callable):
    output = judged(**CALM)
    output.notifications = output.notifications[40:]
    verdict = output.verdict()
    assert found(verdict) == {Deviation.LOST: 40}
    assert len(verdict.examples) == 5
    text = render_text(verdict)
    assert "40 lost" in text
    assert "was sent, but was not notified of" in text
    read = msgspec.json.decode(render_json(verdict))
    assert read["good"] is False
    assert read["counts"]["lost"] == 40
    assert len(read["examples"]) == 5


def test_a_good_verdict_says_so(judged: Callable):
    verdict = judged(**CALM).verdict()
    assert "0 lost, 0 doubled, 0 out of order" in render_text(verdict)
    assert msgspec.json.decode(render_json(verdict))["good"] is True
