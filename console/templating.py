"""How values are shown on pages."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.templating import Jinja2Templates

from domain.clock import Clock, instant_of, instant_text
from domain.printable import counted, printable

TEMPLATES = Path(__file__).parent / "templates"


def make_templates(clock: Clock) -> Jinja2Templates:
    """All texts are escaped. Ids of other systems pass the filter `visible`, which shows control characters as escapes."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": printable,
        "counted": counted,
        "number": lambda value: f"{value:,}".replace(",", "\N{NO-BREAK SPACE}"),
        "instant": lambda at: instant_text(instant_of(at) if isinstance(at, str) else at).replace("T", " ")[:19],
        "age": lambda at: duration_text(clock.now() - (instant_of(at) if isinstance(at, str) else at)),
        "duration": duration_text,
        "rate": rate_text,
    }
    return Jinja2Templates(env=environment)


def duration_text(milliseconds: int) -> str:
    """Return a span in its two largest units, such as `3 h 12 min`."""
    seconds = max(0, milliseconds) // 1_000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def rate_text(per_second: float) -> str:
    """Return a rate with so many digits that a rare event is not told as none."""
    return f"{per_second:.1f}" if per_second >= 0.1 or not per_second else f"{per_second:.3f}"
