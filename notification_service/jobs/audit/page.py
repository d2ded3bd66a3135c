"""The audit's result as one self-contained HTML page: it needs no script and no other file, and reads well on paper."""

from html import escape
from importlib.resources import files
from pathlib import Path

from notification_service.jobs.audit.chart_sections import chart_sections
from notification_service.jobs.audit.finding import EXPLANATIONS, Deviation, Finding
from notification_service.jobs.audit.markup import (
    State,
    duration_words,
    facts,
    foreign,
    instant_words,
    notice,
    prose,
    section,
)
from notification_service.jobs.audit.summary import AuditSubject, AuditSummary
from resequencer.clock import instant_text
from resequencer.printable import counted, printable

_TABLE = "<code>result/kind=finding/</code>"
_LONGEST_SENTENCE = 600


def findings_section(summary: AuditSummary) -> str:
    """Return the section; empty if nothing deviates."""
    found = [each for each in Deviation if summary.counts.get(each.value)]
    if not found:
        return ""
    groups = "".join(_group(each, summary, is_open=at == 0) for at, each in enumerate(found))
    return section("findings", "Findings", groups)


def _group(deviation: Deviation, summary: AuditSummary, *, is_open: bool) -> str:
    count, explanation = summary.counts[deviation.value], EXPLANATIONS[deviation]
    examples = [each for each in summary.examples if each.deviation is deviation]
    further = count - len(examples)
    more = f'<p class="soft">{further:,} more: see the table {_TABLE} beside this page.</p>' if further > 0 else ""
    opened = ' open=""' if is_open else ""
    return (
        f'<details class="group"{opened}><summary><span class="kind">{escape(deviation.value)}</span> '
        f'<span class="count">{count:,}</span></summary><p>{prose(explanation.meaning)}</p>'
        f"<p><strong>What to do:</strong> {prose(explanation.remedy)}</p>"
        f'<ol class="findings">{"".join(map(_item, examples))}</ol>{more}</details>\n'
    )


def _item(found: Finding) -> str:
    unit = '<span class="soft">no unit</span>' if found.unit is None else f"<code>{foreign(found.unit)}</code>"
    place = "no position" if found.offset is None else f"partition {found.partition}, offset {found.offset}"
    what = foreign(found.what, _LONGEST_SENTENCE)
    return f'<li><span class="unit">{unit}</span><span class="place">{place}</span><span class="what">{what}</span></li>'


_WORDS = (
    ("late", "A notification's mark: it was handled after a later one of its flow (`SEQUENCE`: of its unit)."),
    ("incomplete", "A notification's mark: it was released without an envelope that is missing."),
    ("overdue", "A unit still waits, although its deadline has passed."),
    ("overtaken", "An envelope arrived behind a later one of its unit. Most of them are waited for, and nothing is marked."),
    ("open", "A notification that may still be published: its envelope waits, or its record was not settled yet."),
)

_FOOTER = (
    "<footer><p>Beside this page: <code>summary.json</code> with the same figures, and <code>result/</code> with all findings "
    "and measurements as Parquet.</p></footer>\n"
)


def write_page(summary: AuditSummary, subject: AuditSubject, path: Path) -> None:
    path.write_text(render_page(summary, subject), encoding="utf-8")


def render_page(summary: AuditSummary, subject: AuditSubject) -> str:
    """Return the page, which is well-formed XML too."""
    style = files("notification_service.jobs.audit").joinpath("page.css").read_text(encoding="utf-8")
    findings = findings_section(summary)
    main = (
        section("figures", "Figures", _figures(summary)),
        findings,
        chart_sections(summary, subject),
        section("words", "Words", facts(((name, prose(meaning)) for name, meaning in _WORDS), "words")),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>Audit of {escape(printable(subject.service))}: {_title(summary)}</title>\n<style>\n{style}</style></head>\n"
        '<body>\n<header><p class="product">Resequencer</p><h1>Audit</h1>'
        f'<div class="verdict">{"".join(_notices(summary))}</div>{_subject(summary, subject)}</header>\n'
        f"{_contents(has_findings=bool(findings))}<main>\n{''.join(main)}</main>\n{_FOOTER}</body>\n</html>\n"
    )


def _title(summary: AuditSummary) -> str:
    return "nothing deviates" if summary.is_good else counted(sum(summary.counts.values()), "deviation")


def _notices(summary: AuditSummary) -> list[str]:
    if summary.is_good:
        notices = [
            notice(
                State.OK,
                "<strong>Nothing deviates.</strong> Nothing is lost, doubled or out of order; the content is as expected.",
            )
        ]
    else:
        found = ", ".join(f"{count:,} {escape(name)}" for name, count in summary.counts.items() if count)
        notices = [notice(State.PROBLEM, f"<strong>{_title(summary).capitalize()}:</strong> {found}.")]
    if summary.open:
        may_follow = f"<strong>{counted(summary.open, 'notification')} may still be published.</strong>"
        notices.append(notice(State.ATTENTION, f"{may_follow} Audit again when nothing waits any more."))
    if summary.groups.awaited:
        text = f"<strong>{counted(summary.groups.awaited, 'group report')} may still be published.</strong>"
        notices.append(notice(State.ATTENTION, f"{text} The facts that complete their groups are not counted yet."))
    if summary.groups.not_judged:
        text = f"<strong>{counted(summary.groups.not_judged, 'group')} could not be judged.</strong>"
        notices.append(notice(State.ATTENTION, f"{text} Their facts are in several partitions, so their order is unknown."))
    if summary.not_compared:
        text = (
            f"<strong>The content of {counted(summary.not_compared, 'notification')} was not compared.</strong> "
            "It has your own target type or handler, or its lookups were removed. Its order and its marks were judged."
        )
        notices.append(notice(State.ATTENTION, text))
    return notices


def _subject(summary: AuditSummary, subject: AuditSubject) -> str:
    began = f'<time datetime="{instant_text(subject.began_at)}">{instant_words(subject.began_at)}</time>'
    named = [("audited at", began), ("took", duration_words(subject.took_ms)), ("service", foreign(subject.service))]
    named += [("input", foreign(subject.input)), ("notifications", foreign(subject.notifications))]
    named += [("dead letters", foreign(subject.dead_letters))]
    if subject.reports is not None:
        named.append(("group reports", foreign(subject.reports)))
    if subject.archive is not None:
        named.append(("read from the archive", foreign(subject.archive)))
    named.append(("consumer group", "none: files" if subject.group is None else foreign(subject.group)))
    named += [("strategy", foreign(subject.strategy)), ("deadline", _deadline(subject)), ("time span", _span(summary))]
    if subject.has_lookups:
        named.append(("lookups", _lookups(summary)))
    return facts(named, "facts")


def _deadline(subject: AuditSubject) -> str:
    shortest, longest = duration_words(subject.shortest_deadline_ms), duration_words(subject.longest_deadline_ms)
    return longest if shortest == longest else f"learned, {shortest} to {longest}"


def _span(summary: AuditSummary) -> str:
    if summary.first_made_at is None or summary.last_made_at is None:
        return "no notification says when it was made"
    return f"notifications made from {instant_words(summary.first_made_at)} to {instant_words(summary.last_made_at)}"


def _lookups(summary: AuditSummary) -> str:
    used = [each for each in summary.lookups if each.version is not None]
    if not used:
        return "none was used"
    return "<br/>".join(f"version {foreign(each.version or '')} ({counted(each.notifications, 'notification')})" for each in used)


def _contents(*, has_findings: bool) -> str:
    names = {"figures": "Figures", **({"findings": "Findings"} if has_findings else {}), "waiting": "Waiting"}
    names |= {"arrival-order": "Order of arrival", "over-time": "Over time", "words": "Words"}
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in names.items())
    return f'<nav aria-label="On this page"><ul>{links}</ul></nav>\n'


def _figures(summary: AuditSummary) -> str:
    figures = {
        "units": summary.units,
        "envelopes": summary.arrivals,
        "notifications": summary.notifications,
        "marked incomplete": summary.incomplete,
        "marked late": summary.late,
        "open": summary.open,
        "not compared": summary.not_compared,
    }
    if summary.orders.given:
        orders = summary.orders
        figures |= {"orders": orders.given, "orders done": orders.done, "orders refused": orders.refused}
        figures |= {"orders lost by the storage": orders.lost_by_heal, "orders without an outcome": orders.without_outcome}
    if summary.groups.groups:
        groups = summary.groups
        figures |= {"groups": groups.groups, "payments of groups": groups.payments, "group reports": groups.reports}
        figures |= {"groups complete": groups.complete, "groups incomplete": groups.incomplete}
        figures |= {"groups closed": groups.closed, "groups without a report": groups.open}
        figures |= {"reports that may still come": groups.awaited, "groups not judged": groups.not_judged}
    return facts(((name, f"{count:,}") for name, count in figures.items()), "figures")
