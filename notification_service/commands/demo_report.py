"""The output of the demo: the table, the story of one unit, and its last pain.002."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from shlex import join
from xml.etree.ElementTree import indent, register_namespace, tostring

import msgspec
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped] # defusedxml ships no types.
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from guardian.ports import TransportUnavailable
from notification_service.aggregation.files import ValuesFile
from notification_service.commands.units import agrees, read_output, tell
from notification_service.configuration.configuration import Configuration
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.line_format import Line, decode_line
from notification_service.payments.iso20022.pain002_schema import render_report_xml
from notification_service.simulator.expectation import ExpectedUnit
from notification_service.simulator.generate.simulation import Summary
from notification_service.simulator.verify.group_check import GroupsCheck, MessageOutcome
from notification_service.simulator.verify.story import arrivals_of, find_unit, render_story
from notification_service.simulator.verify.verdict import Verdict, render_text
from notification_service.status.report import StatusReport
from notification_service.wiring.aggregation import stores_of


def readable(value: bytes, target_type: str) -> str:
    """Return the report as XML, for either target type of the service; the output of a user's own target type is unchanged."""
    if target_type == "report-xml":
        return _indented(value.decode())
    if target_type not in ("report", "produced-report"):
        return value.decode("utf-8", "replace")
    document = msgspec.json.decode(value)
    return _indented(render_report_xml(document["report"] if target_type == "produced-report" else document))


def _indented(xml: str) -> str:
    """Return the document with one element per line. The notification itself has no line breaks."""
    root = fromstring(xml.encode())
    register_namespace("", root.tag.removeprefix("{").partition("}")[0])
    indent(root)
    return tostring(root, encoding="unicode")


def show_table(console: Console, summary: Summary, status: StatusReport, envelopes_per_second: float) -> None:
    counts = status.counts
    table = Table(title=f"What was put in order (seed {summary.seed})", show_header=False, min_width=60)
    table.add_column("what")
    table.add_column("figure", justify="right")
    rows: Sequence[tuple[str, object]] = (
        ("units", summary.units),
        ("envelopes", summary.lines - summary.garbage),
        ("out of order on arrival", summary.out_of_order),
        ("longest wait", f"{status.longest_wait_ms / 1_000:.1f} s"),
        ("duplicates dropped", counts.get("duplicates", 0)),
        ("units released at the deadline", counts.get("released_units", 0)),
        ("given up, then arrived late", counts.get("late", 0)),
        ("dead letters", sum(status.dead_letters.values())),
        *((f"notifications {name}", count) for name, count in sorted(status.notifications.items())),
        ("envelopes per second", f"{envelopes_per_second:,.0f}"),
    )
    for what, figure in rows:
        table.add_row(what, str(figure))
    console.print(table)


def show_verdict(console: Console, verdict: Verdict) -> None:
    console.print(render_text(verdict), style="green" if verdict.is_good else "red", highlight=False, soft_wrap=True)


def show_story(console: Console, configuration: Configuration, expected: Path) -> bool:
    """Show the story of one unit and its last report; return whether the output agrees with the unit's own code."""
    with expected.open("rb") as lines:
        unit = find_unit(lines)
    if unit is None:
        console.print("no unit that arrived out of order has a story short enough to show; try another seed")
        return True
    return _show(console, configuration, unit)


def show_console(console: Console, command: Sequence[str]) -> None:
    """Show the command that opens the console, on one line that can be copied whole."""
    console.print("\nTo look at it in a browser:")
    console.print(join(command), markup=False, highlight=False, soft_wrap=True)


def _show(console: Console, configuration: Configuration, unit: ExpectedUnit) -> bool:
    telling = tell(arrivals_of(unit, configuration.ingress.file_directory), configuration)
    output = read_output(unit.unit, configuration.notification.output_directory / "notifications.jsonl")
    console.print(f"\nThe story of [bold]{unit.unit}[/bold]")
    for line in render_story(telling.steps):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    does_agree = agrees(telling, output)
    if not does_agree:
        console.print("the order of the service's output differs from the order that its own code decides", style="red")
    if output.values:
        console.print("\nIts last pain.002")
        text = readable(output.values[-1], configuration.notification.target_type)
        console.print(Syntax(text, "xml", background_color="default"), soft_wrap=True)
    return does_agree


_SIZES = 8
"""How many sizes of messages the table tells apart."""
_SHOWN = 5
"""How many messages without a report are named."""


class CountedFacts:
    """How far the facts of a run in files are counted, in bytes. `size` is that of all facts."""

    def __init__(self, configuration: Configuration) -> None:
        payments = next(stores_of(configuration))
        facts = payments.in_directory / "partition-0.jsonl"
        self.size = facts.stat().st_size if facts.exists() else 0
        self._values = payments.directory / "values.db"

    def counted(self) -> int:
        if not self._values.exists():
            return 0
        try:
            with closing(ValuesFile(self._values, is_copy=False)) as file:
                progress = file.progress(0)
        except TransportUnavailable:  # The worker is making the file.
            return 0
        return 0 if progress is None else progress.next_offset


def show_groups(console: Console, check: GroupsCheck) -> None:
    """Show how many messages are complete, with how many payments each, and why no report on the others can come."""
    outcomes, counts = list(check.outcomes()), check.counts()
    table = Table(title="Which messages are through", show_header=False, min_width=60)
    table.add_column("what")
    table.add_column("figure", justify="right")
    complete = [each for each in outcomes if each.why is None]
    rows: list[tuple[str, object]] = [
        ("messages (pain.001)", counts.messages),
        ("complete, and one group report each", counts.complete),
        *((f"  with {_payments(size)}", number) for size, number in _sizes(complete)),
        ("not complete", counts.messages - counts.complete),
        *((f"  {why}", number) for why, number in Counter(each.why for each in outcomes if each.why is not None).most_common()),
        ("payments of messages without an id of their own", counts.without_message),
        ("group reports", counts.reports),
    ]
    for what, figure in rows:
        table.add_row(what, f"{figure:,}" if isinstance(figure, int) else str(figure))
    console.print(table)
    for each in islice((each for each in outcomes if each.why is not None), _SHOWN):
        console.print(f"{each.message_id} is not complete: {each.why}", highlight=False, markup=False, soft_wrap=True)


def show_report(console: Console, configuration: Configuration) -> None:
    """Show one group report in full: that on the message with the most payments."""
    reports = next(stores_of(configuration)).directory / "completions.jsonl"
    found = None
    for _, line in scan_output(reports, SystemFiles()):
        read = decode_line(line.content)
        if isinstance(read, Line) and (found is None or len(read.value) > len(found.value)):
            found = read
    if found is None:
        console.print("\nno message is complete, so there is no group report to show")
        return
    console.print(f"\nOne group report, for [bold]{(found.key or b'').decode(errors='replace')}[/bold]")
    text = readable(found.value, configuration.aggregation.target_type)
    console.print(Syntax(text, "xml", background_color="default"), soft_wrap=True)


def _sizes(complete: list[MessageOutcome]) -> list[tuple[int, int]]:
    """Return how many messages have how many payments; of many sizes those that are the most frequent."""
    return sorted(Counter(each.payments for each in complete).most_common(_SIZES))


def _payments(count: int) -> str:
    return "1 payment" if count == 1 else f"{count} payments"
