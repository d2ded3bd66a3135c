"""Compares the complete output with the expectations."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import NamedTuple, Self
from zlib import crc32

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.line_format import Defect
from notification_service.judgement.order_check import ObservedOutcome
from notification_service.simulator.expectation import Expected, ExpectedGarbage, ExpectedUnit
from notification_service.simulator.generate.envelopes import PART_TYPES
from notification_service.simulator.verify.group_check import GroupsCheck
from notification_service.simulator.verify.observation import (
    ObservedNotification,
    ObservedReport,
    read_dead_letter,
    read_notification,
)
from notification_service.simulator.verify.operator_orders import (
    NOTHING,
    Explained,
    OrdersLog,
    check_orders,
    explain,
    read_outcome,
)
from notification_service.simulator.verify.order_rules import DeadLetterCheck, Rules, Seen, order_findings
from notification_service.simulator.verify.verdict import Deviation, Finding, Findings, Verdict

_BUCKETS = 128
_SPOOLED_BYTES = 256 * 1024
"""A larger bucket goes to a temporary file, so at most 32 MB are in memory."""


class Buckets:
    """All lines of a unit are in one bucket and keep their order. A line must not contain a newline."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._files = [self._stack.enter_context(_spooled()) for _ in range(_BUCKETS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def add(self, unit: str, line: bytes) -> None:
        self._files[crc32(unit.encode()) % _BUCKETS].write(line + b"\n")

    def each(self) -> Iterator[Iterator[bytes]]:
        """Yield the lines of each bucket, without newlines."""
        for file in self._files:
            file.seek(0)
            yield (line[:-1] for line in file)


def _spooled() -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(max_size=_SPOOLED_BYTES)


def content_findings(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules) -> Iterator[Finding]:
    """Yield the flaws of each notification; `seen` is in the order of the output.

    A reference must be quoted where the part that holds it is certainly known. That is the case if the notification's own
    envelope or one notified before carried the part. With a gathering strategy it is also the case if nothing is incomplete.
    Elsewhere a reference may be missing, but must not be another one.
    """
    notified: set[str] = set()
    for each in seen:
        notified.update(each.envelope.parts)
        known = {*PART_TYPES} if rules.gathers and each.observed.incomplete is None else notified
        if each.envelope.digest is not None:
            flaws = [*_record_flaws(unit, each)]
        else:
            flaws = [*_header_flaws(unit, each)]
            if rules.has_report:
                flaws += _report_flaws(unit, each, known)
        if flaws:
            where = f"{each.envelope.flow} #{each.envelope.sequence}"
            yield Finding(Deviation.WRONG_CONTENT, unit.unit, f"{where}: {'; '.join(flaws)}")


def _header_flaws(unit: ExpectedUnit, seen: Seen) -> Iterator[str]:
    process, observed = seen.envelope.processes[seen.at], seen.observed
    yield from _differences(
        ("header envelope-id", observed.envelope_id, seen.envelope.envelope_id),
        ("header event-name", observed.event, process.event),
        ("header process-flow-name", observed.flow, process.flow),
        ("partition in source-position", observed.partition, unit.partition),
    )


def _record_flaws(unit: ExpectedUnit, seen: Seen) -> Iterator[str]:
    """Yield how a record differs from the one that came, but for our headers behind its own."""
    yield from _differences(
        ("the digest of key, headers and value", seen.observed.digest, seen.envelope.digest),
        ("partition in source-position", seen.observed.partition, unit.partition),
    )


def _report_flaws(unit: ExpectedUnit, seen: Seen, known: set[str]) -> Iterator[str]:
    report, process = seen.observed.report, seen.envelope.processes[seen.at]
    if report is None:
        yield "its value is no report"
        return
    yield from _differences(
        ("GrpHdr/MsgId", report.message_id, process.notification_id),
        ("TxSts", report.status, process.status),
        ("StsRsnInf/Rsn", report.reason, process.reason),
    )
    for part, tag, stated, sent in _references(unit, report):
        is_omitted = stated in (None, "NOTPROVIDED") and part not in known
        if sent is not None and stated != sent and not is_omitted:
            yield f"{tag} is {stated!r}, {sent!r} was sent"


def _references(unit: ExpectedUnit, report: ObservedReport) -> tuple[tuple[str, str, str | None, str | None], ...]:
    """Return for each reference its part, its element, the report's value, and the value that was sent."""
    initiation, instruction, transaction = PART_TYPES
    return (
        (initiation, "OrgnlMsgId", report.original_message_id, unit.message_id),
        (instruction, "OrgnlPmtInfId", report.original_payment_information_id, unit.payment_information_id),
        (transaction, "OrgnlEndToEndId", report.original_end_to_end_id, unit.end_to_end_id),
    )


def _differences(*compared: tuple[str, object, object]) -> Iterator[str]:
    for name, stated, expected in compared:
        if stated != expected:
            yield f"{name} is {stated!r}, not {expected!r}"


_EXPECTED, _OBSERVED = b"E", b"O"
_read_expected = msgspec.json.Decoder(Expected).decode
_read_observed = msgspec.json.Decoder(ObservedNotification).decode


class GroupFiles(NamedTuple):
    """The files of facts, of group reports, and of the groups' dead letters, and what checks them."""

    files: tuple[Path, Path, Path]
    check: GroupsCheck


def verify_files(
    rules: Rules,
    expected: Path,
    notifications: Path,
    dead_letters: Path,
    outcomes: Path | None = None,
    read_log: Callable[[], OrdersLog] | None = None,
    groups: GroupFiles | None = None,
) -> Verdict:
    """Compare files. Rotated output files are included; a missing output counts as empty, a last line without its end is ignored.

    If the service takes orders, `outcomes` is the file of their outcomes, and `read_log` reads the orders. `groups` are the files
    of a service that counts the payments of messages.

    Raises:
        TransportRefused, TransportUnavailable: A file cannot be read, or the expectations are damaged.
    """
    outcome_lines = () if outcomes is None else _output_lines(outcomes)
    output = _output_lines(notifications), _output_lines(dead_letters)
    expected_lines = _expected_lines(expected)
    check = None
    if groups is not None:
        check = groups.check
        expected_lines = _noted(expected_lines, check)
        add_lines(check, *map(_output_lines, groups.files))
    return verify(rules, expected_lines, *output, outcome_lines, read_log, check)


def verify(
    rules: Rules,
    expected: Iterable[bytes],
    notifications: Iterable[bytes],
    dead_letters: Iterable[bytes],
    outcomes: Iterable[bytes] = (),
    read_log: Callable[[], OrdersLog] | None = None,
    groups: GroupsCheck | None = None,
) -> Verdict:
    """Compare lines (without newlines) of expectations and output, each in order.

    `read_log` is called after all outcomes were read, so that no outcome is without its order. Without it the service takes no
    orders, and nothing is explained by one. `groups` has its facts and reports already, and its expectations when the first of
    these lines has been read to the end.

    Memory holds one bucket of units, at most a few MB of lines each, and the garbage. The rest is in temporary files, as large as
    the expectations and a third of the output. A unit that was simulated twice counts once.

    Raises:
        TransportRefused: A line of the expectations is damaged, or there is no space for temporary files.
    """
    findings = Findings()
    observed = list(read_outcomes(outcomes, findings))
    explained = explain(observed)
    try:
        with Buckets() as buckets:
            garbage = _sort_expected(expected, buckets)
            totals = _sort_observed(notifications, buckets, findings)
            verified = [_verify_bucket(lines, rules, findings, explained) for lines in buckets.each()]
    except OSError as error:
        raise TransportRefused("temporary files", f"{error.strerror or error}; free some space, or set TMPDIR") from error
    dead_letter_check = DeadLetterCheck(rules)
    for each in garbage:
        dead_letter_check.expect(each, findings)
    for number, line in enumerate(dead_letters, start=1):
        dead_letter = read_dead_letter(line)
        if isinstance(dead_letter, Defect):
            findings.add(Finding(Deviation.UNREADABLE, f"dead letter {number}", dead_letter.problem))
        else:
            dead_letter_check.came(dead_letter, findings)
    dead_letter_check.end(findings)
    dead_letter_check.end_orders(explained.dead_letters, findings)
    checked = None if read_log is None else check_orders(read_log(), observed)
    for found in () if checked is None else checked.findings:
        findings.add(found)
    if groups is not None:
        groups.end(findings, explained.disturbed)
    notified, incomplete, late = totals
    units, found_units, other_units = map(sum, zip(*verified, strict=True))
    return Verdict(
        rules.strategy,
        units,
        notified,
        incomplete,
        late,
        dead_letter_check.count,
        findings.counts(),
        findings.examples(),
        None if checked is None else checked.counts,
        None if groups is None else groups.counts(),
        found_units,
        other_units,
    )


def add_lines(check: GroupsCheck, facts: Iterable[bytes], reports: Iterable[bytes], dead_letters: Iterable[bytes]) -> None:
    """Add lines (without newlines) of the facts, of the group reports, and of the groups' dead letters."""
    for lines, add in ((facts, check.add_fact), (reports, check.add_report), (dead_letters, check.add_dead_letter)):
        for line in lines:
            add(line)


def read_outcomes(lines: Iterable[bytes], findings: Findings) -> Iterator[ObservedOutcome]:
    """Yield the outcomes of lines without newlines; one that cannot be read is a finding."""
    for line in lines:
        outcome = read_outcome(line)
        if isinstance(outcome, Defect):
            findings.add(Finding(Deviation.UNREADABLE, "an outcome of an order", outcome.problem))
        else:
            yield outcome


def _sort_expected(lines: Iterable[bytes], buckets: Buckets) -> list[ExpectedGarbage]:
    garbage = []
    for number, line in enumerate(lines, start=1):
        expected = read_expected(line, number)
        if isinstance(expected, ExpectedGarbage):
            garbage.append(expected)
        else:
            buckets.add(expected.unit, _EXPECTED + line)
    return garbage


def read_expected(line: bytes, number: int) -> Expected:
    """Decode line `number` of the expectations.

    Raises:
        TransportRefused: The line is damaged.
    """
    try:
        expected: Expected = _read_expected(line)
    except msgspec.DecodeError as error:
        raise TransportRefused("expectations", f"line {number} is damaged ({error}); simulate again") from error
    return expected


def _sort_observed(lines: Iterable[bytes], buckets: Buckets, findings: Findings) -> tuple[int, int, int]:
    count = incomplete = late = 0
    for number, line in enumerate(lines, start=1):
        observed = read_notification(line)
        if isinstance(observed, Defect):
            findings.add(Finding(Deviation.UNREADABLE, f"notification {number}", observed.problem))
            continue
        count += 1
        incomplete += observed.incomplete is not None
        late += observed.is_late
        buckets.add(observed.unit, _OBSERVED + msgspec.json.encode(observed))
    return count, incomplete, late


def _verify_bucket(lines: Iterator[bytes], rules: Rules, findings: Findings, explained: Explained) -> tuple[int, int, int]:
    """Compare the units of a bucket. Return how many are expected, how many of these came, and how many others came."""
    expected: dict[str, ExpectedUnit] = {}
    observed: dict[str, list[ObservedNotification]] = {}
    for line in lines:
        if line.startswith(_EXPECTED):
            unit = _read_expected(line[1:])
            assert isinstance(unit, ExpectedUnit)
            expected.setdefault(unit.unit, unit)
        else:
            notification = _read_observed(line[1:])
            observed.setdefault(notification.unit, []).append(notification)
    for name in expected | observed:
        known = expected.get(name) or ExpectedUnit(name, 0, "shared", ())
        for finding in unit_findings(known, observed.get(name, []), rules, explained):
            findings.add(finding)
    found = len(expected.keys() & observed.keys())
    return len(expected), found, len(observed) - found


def unit_findings(
    unit: ExpectedUnit, observed: Iterable[ObservedNotification], rules: Rules, explained: Explained = NOTHING
) -> Iterator[Finding]:
    """Yield all deviations of one unit's notifications, which are in the order of the output, that no order explains.

    If orders made N envelopes of the unit dead letters, the notifications of N envelopes may be missing.
    """
    wanted = {
        process.notification_id: (envelope, index)
        for envelope in unit.envelopes
        for index, process in enumerate(envelope.processes)
        if process.notification_id is not None
    }
    seen: dict[str, Seen] = {}
    for each in observed:
        identifier = each.notification_id
        if identifier not in wanted or wanted[identifier][0].is_lost:
            yield Finding(Deviation.UNEXPECTED, unit.unit, f"{each.named} is not an expected notification")
        elif identifier not in seen:
            seen[identifier] = Seen(*wanted[identifier], each)
        elif not each.is_possible_duplicate:
            yield Finding(Deviation.DOUBLED, unit.unit, f"{each.named} was published more than once")
        if each.is_released_by_order and unit.unit not in explained.released:
            what = f"{each.named} is marked released-by, but no release or skip of the unit was done"
            yield Finding(Deviation.RELEASED_WITHOUT_ORDER, unit.unit, what)
    missing = [envelope.envelope_id for name, (envelope, _) in wanted.items() if name not in seen and not envelope.is_lost]
    is_set_aside = len(set(missing)) <= explained.set_aside.get(unit.unit, 0)
    for identifier, (envelope, index) in wanted.items():
        if identifier not in seen and not envelope.is_lost and not is_set_aside:
            event = f"{envelope.processes[index].event} ({envelope.flow} #{envelope.sequence})"
            yield Finding(Deviation.LOST, unit.unit, f"{event} was sent, but was not notified of")
    yield from order_findings(unit, list(seen.values()), rules, is_disturbed=unit.unit in explained.disturbed)
    yield from content_findings(unit, list(seen.values()), rules)


def _output_lines(path: Path) -> Iterator[bytes]:
    return (line.content for _, line in scan_output(path, SystemFiles()))


def _expected_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line[:-1] for line in file if line.endswith(b"\n"))
    except OSError as error:
        raise TransportRefused(str(path), f"{error.strerror or error}") from error


def _noted(lines: Iterable[bytes], check: GroupsCheck) -> Iterator[bytes]:
    """Yield the lines of the expectations, each noted for the groups."""
    for number, line in enumerate(lines, start=1):
        expected = read_expected(line, number)
        if isinstance(expected, ExpectedUnit):
            check.expect(expected)
        yield line
