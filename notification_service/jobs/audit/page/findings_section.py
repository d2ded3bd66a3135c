"""The page's findings, by deviation: what it means, what to do, and the first findings of each. All but the first are folded."""

from html import escape

from notification_service.jobs.audit.explanations import EXPLANATIONS
from notification_service.jobs.audit.finding import Deviation, Finding
from notification_service.jobs.audit.page.markup import foreign, prose, section
from notification_service.jobs.audit.summary import AuditSummary

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
    left = count - len(examples)
    more = f'<p class="soft">{left:,} more: see the table {_TABLE} beside this page.</p>' if left > 0 else ""
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
