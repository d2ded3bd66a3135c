"""docs/configuration.md says of every key what reference.conf and the schema say."""

import json
from pathlib import Path

from daemon.configuration.hocon.parser import parse_text, resolve
from daemon.configuration.schema import SCHEMA
from daemon.configuration.shipped import read_reference
from domain.secret import is_secret_name

KEYS, CLIENTS = SCHEMA.keys, SCHEMA.open_sections
DOCUMENT = Path("docs/configuration.md")


def documented_comments():
    """For each key of reference.conf its comment as one text, found by following the braces."""
    comments, sections, comment = {}, [], []
    for line in map(str.strip, read_reference().splitlines()):
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


def expected_rows():
    defaults = resolve([parse_text(read_reference(), "reference", where="reference.conf")]).values
    for path, comment in documented_comments().items():
        kind = KEYS.get(path)
        default = kind.show(kind.read(defaults[path])) if kind else defaults[path]
        cells = (f"`{path}`", f"`{json.dumps(default)}`", kind.expects if kind else "Kafka's own", comment)
        yield "| " + " | ".join(each.replace("|", "\\|").replace("<", "&lt;") for each in cells) + " |"


def test_every_key_is_documented_as_the_reference_and_the_schema_say():
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert rows == list(expected_rows()), "the table of docs/configuration.md must have exactly these rows"


def test_the_reference_has_exactly_the_keys_of_the_schema():
    found = {path for path in documented_comments() if not path.startswith(CLIENTS)}
    assert found == set(KEYS)
    assert all(documented_comments().values())


def test_the_reference_stands_by_itself():
    document = parse_text(read_reference(), "reference", where="reference.conf")
    assert resolve([document]).variables == frozenset()
    assert resolve([document]).values == resolve([document]).values


def test_the_only_keys_that_are_secret_by_their_names_are_the_passwords():
    storage = "payment-status-notification.storage"
    assert [path for path in KEYS if is_secret_name(path)] == [f"{storage}.redis.password", f"{storage}.infinispan.password"]
