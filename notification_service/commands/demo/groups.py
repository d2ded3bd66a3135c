"""The payments of messages in the demo: what was counted, which messages are complete and why others are not, and one report."""

from collections import Counter
from contextlib import closing
from itertools import islice

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from guardian.ports import TransportUnavailable
from notification_service.aggregation.values.file import ValuesFile
from notification_service.commands.demo.readable import readable
from notification_service.configuration.configuration import Configuration
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.line_format import Line, decode_line
from notification_service.simulator.verify.groups.check import GroupsCheck, MessageOutcome
from notification_service.wiring.aggregation.stores import stores_of

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
