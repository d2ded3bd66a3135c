"""What came from outside as a person may see it: on one line, and without what steers a terminal."""

import re


def printable(text: str) -> str:
    """The text with what cannot be printed escaped, line ends too."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def without_password(text: str) -> str:
    """With the password of a URL in it masked: `redis://user:***@host`."""
    return re.sub(r"(://[^/@:\s]*:)\S*(@)", r"\1***\2", text)


def counted(count: int, noun: str) -> str:
    """`1 unit`, `2 units`, `1,000 units`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
