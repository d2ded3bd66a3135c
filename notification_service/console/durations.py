"""Spans of time in words, as pages and commands show them."""

from resequencer.clock import Instant


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


def relative_text(at: Instant, now: Instant) -> str:
    """Return where the instant lies beside the present one: `in 2 min 10 s`, `25 s ago`."""
    return f"in {duration_text(at - now)}" if at > now else f"{duration_text(now - at)} ago"
