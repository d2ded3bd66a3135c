"""The output of the demo: the table, the story of one unit, and its last pain.002."""

from collections.abc import Sequence
from pathlib import Path
from shlex import join

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from notification_service.commands.demo.readable import readable
from notification_service.commands.units.story import agrees, read_output, tell
from notification_service.configuration.configuration import Configuration
from notification_service.simulator.expectation import ExpectedUnit
from notification_service.simulator.generate.simulation import Summary
from notification_service.simulator.verify.story import arrivals_of, find_unit, render_story
from notification_service.simulator.verify.verdict import Verdict, render_text
from notification_service.status.report import StatusReport


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
