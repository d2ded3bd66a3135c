"""Foreign texts made safe to print: on one line, and without control sequences for a terminal."""

import re


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped, including line ends."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def without_password(text: str) -> str:
    """Return the text with the password of a URL in it masked: `redis://user:***@host`."""
    return re.sub(r"(://[^/@:\s]*:)\S*(@)", r"\1***\2", text)


def counted(count: int, noun: str) -> str:
    """`1 unit`, `2 units`, `1,000 units`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
