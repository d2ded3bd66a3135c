"""How values are shown on pages."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.templating import Jinja2Templates

from notification_service.console.durations import duration_text, relative_text
from resequencer.clock import Clock, Instant, instant_of, instant_text
from resequencer.printable import counted, printable

TEMPLATES = Path(__file__).parent / "templates"
_ISO_INSTANT = re.compile(r"\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[.\d]*Z")


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
        "instant": instant_shown,
        "with_instants": lambda text: _ISO_INSTANT.sub(lambda found: instant_shown(found[0]), text),
        "age": lambda at: duration_text(clock.now() - (instant_of(at) if isinstance(at, str) else at)),
        "relative": lambda at: relative_text(instant_of(at) if isinstance(at, str) else at, clock.now()),
        "duration": duration_text,
        "rate": rate_text,
    }
    return Jinja2Templates(env=environment)


def instant_shown(at: Instant | str) -> str:
    """Return an instant as pages show it, to the second; a text that is no instant as it is, made printable."""
    try:
        return instant_text(instant_of(at) if isinstance(at, str) else at).replace("T", " ")[:19]
    except ValueError:
        return printable(str(at))


def rate_text(per_second: float) -> str:
    """Return a rate with so many digits that a rare event is not told as none."""
    return f"{per_second:.1f}" if per_second >= 0.1 or not per_second else f"{per_second:.3f}"
