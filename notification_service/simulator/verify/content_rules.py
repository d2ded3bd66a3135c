"""Checks the content of notifications against the payment that they belong to."""

from collections.abc import Iterator, Sequence

from notification_service.simulator.expectation import ExpectedUnit
from notification_service.simulator.generate.envelopes import PART_TYPES
from notification_service.simulator.verify.observation import ObservedReport
from notification_service.simulator.verify.order_rules import Rules, Seen
from notification_service.simulator.verify.verdict import Deviation, Finding


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
    for part, tag, said, sent in _references(unit, report):
        is_left_out = said in (None, "NOTPROVIDED") and part not in known
        if sent is not None and said != sent and not is_left_out:
            yield f"{tag} is {said!r}, {sent!r} was sent"


def _references(unit: ExpectedUnit, report: ObservedReport) -> tuple[tuple[str, str, str | None, str | None], ...]:
    """Return for each reference its part, its element, the report's value, and the value that was sent."""
    initiation, instruction, transaction = PART_TYPES
    return (
        (initiation, "OrgnlMsgId", report.original_message_id, unit.message_id),
        (instruction, "OrgnlPmtInfId", report.original_payment_information_id, unit.payment_information_id),
        (transaction, "OrgnlEndToEndId", report.original_end_to_end_id, unit.end_to_end_id),
    )


def _differences(*compared: tuple[str, object, object]) -> Iterator[str]:
    for name, said, expected in compared:
        if said != expected:
            yield f"{name} is {said!r}, not {expected!r}"
