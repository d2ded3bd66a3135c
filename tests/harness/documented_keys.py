"""The keys of a schema that conf/reference.conf and docs/configuration.md must describe, and the ones that are missing there."""

import json
from collections.abc import Iterator

from notification_service.configuration.hocon import parse_text, resolve
from notification_service.configuration.schema import Schema

REFERENCE, DOCUMENT = "conf/reference.conf", "docs/configuration.md"
SHORT = {
    "a duration with its unit from ": "",
    "a whole number from ": "",
    "a size from ": "",
    " (in double quotes if it looks like a number or a duration)": "",
    ", such as 512M (not 512m, which is minutes)": "",
    "a Kafka topic: 1 to 249 letters, digits, dots, underscores and hyphens": "a Kafka topic",
    "the name of a queue: 1 to 200 letters, digits, and . _ : / $ @ + -": "the name of a queue",
    "a topic of MQTT: 1 to 200 letters, digits, and . _ : / @ -": "a topic of MQTT",
    "a URL in double quotes that begins with": "a URL:",
}
"""What the page explains once, above its table."""


def find_gaps(schema: Schema, reference: str, document: str) -> list[str]:
    """Return the missing texts, given both files; for a row of the table, the row itself. The reference explains the keys."""
    found = comments_of(reference)
    comments = {path: text for path, text in found.items() if path in schema.keys or schema.is_option(path)}
    missing = [path for path in schema.keys if path not in found]
    gaps = [f"{REFERENCE}: {path} is missing; write it with its default and a comment" for path in missing]
    gaps += [f"{REFERENCE}: {path} is no key; take it out, or describe it" for path in found if path not in comments]
    gaps += [f"{REFERENCE}: {path} has no comment; write what it is for before it" for path, text in comments.items() if not text]
    rows = [line for line in document.splitlines() if line.startswith("| `")]
    return gaps or list(_gaps_of_rows(list(_rows(schema, reference, comments)), rows))


def _gaps_of_rows(expected: list[str], rows: list[str]) -> Iterator[str]:
    for number, row in enumerate(expected):
        if row not in rows:
            place = f"below the row that begins {expected[number - 1][:80]}" if number else "as the first row of the table"
            yield f"{DOCUMENT}: this row is missing; write it {place}\n{row}"
    for row in rows:
        if row not in expected:
            yield f"{DOCUMENT}: this row is of no key, or says of one something else; take it out\n{row}"
    if rows != expected and set(rows) == set(expected):
        yield f"{DOCUMENT}: the rows must be in the order of {REFERENCE}, each once"


def comments_of(reference: str) -> dict[str, str]:
    """Return the comment of each key as one text, found by following the braces."""
    comments: dict[str, str] = {}
    sections: list[str] = []
    comment: list[str] = []
    for line in map(str.strip, reference.splitlines()):
        if line.startswith("#"):
            comment.append(line.lstrip("# "))
            continue
        if line.endswith("{"):
            sections.append(line.rstrip(" {"))
        elif line == "}":
            sections.pop()
        elif "=" in line:
            comments[".".join((*sections, line.partition("=")[0].strip()))] = " ".join(comment)
        comment = []
    return comments


def shortened(expects: str) -> str:
    for long, short in SHORT.items():
        expects = expects.replace(long, short)
    return expects


def _rows(schema: Schema, reference: str, comments: dict[str, str]) -> Iterator[str]:
    defaults = resolve([parse_text(reference, "reference", where="reference.conf")]).values
    for path in comments:
        takes = schema.keys.get(path)
        default = takes.show(takes.read(defaults[path])) if takes else defaults[path]
        cells = (f"`{path}`", f"`{json.dumps(default)}`", shortened(takes.expects) if takes else "Kafka's own")
        yield "| " + " | ".join(each.replace("|", "\\|").replace("<", "&lt;") for each in cells) + " |"
