"""The examples in docs/design.md are what the strategies do."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.driving import Driven, Envelopes, drive
from msgspec.structs import replace

from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.strategies import STRATEGIES
from resequencer.dead_letter import DeadLetter
from resequencer.errors import PermanentError
from resequencer.notification import Notification
from resequencer.strategies.window import OrderBy

DESIGN = Path(__file__).parents[2] / "docs" / "design.md"
Row = tuple[str, str, str]


def examples() -> Iterator[tuple[str, list[Row]]]:
    """The paragraph before each table of an example, and the table: what arrives, what it brings, what leaves."""
    for paragraph, table in re.findall(r"(Example, `[^|]*?)\n\n((?:\|.*\n)+)", DESIGN.read_text(encoding="utf-8")):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]]
        yield paragraph, [(row[0], row[1] if len(row) == 3 else "", row[-1]) for row in rows]


EXAMPLES = list(examples())


def driven(paragraph: str) -> Driven:
    keys = {name: tuple(found.split(", ")) for name, found in re.findall(r"(\w+)-data-keys = \[(.*?)\]", paragraph)}
    strategies = re.findall(r"Example, `(\w+)`", paragraph)
    assert len(strategies) == 1
    parts = re.findall(r"required-parts = \[(.*?)\]", paragraph)
    order_by = re.findall(r"order-by = (\w+)", paragraph)
    return drive(
        strategies[0],
        keys.get("custom", ()),
        keys.get("pds", ()),
        **({"required_parts": tuple(parts[0].split(", "))} if parts else {}),
        **({"order_by": OrderBy(order_by[0]), "stash_timeout_ms": 2_000} if order_by else {}),
    )


class Played:
    """An example, row by row."""

    def __init__(self, paragraph: str) -> None:
        self._unit = driven(paragraph)
        self._make = Envelopes()
        self._made: dict[str, DataEnvelope] = {}

    def leaves(self, arrives: str, brings: str) -> list[str]:
        before = len(self._unit.left)
        if arrives == "deadline":
            self._unit.expire()
        else:
            self._unit.arrive(self._envelope(arrives, brings))
        return [self._told(each) for each in self._unit.left[before:]]

    def _envelope(self, arrives: str, brings: str) -> DataEnvelope:
        name, _, how = arrives.partition(" ")
        how, _, previous = how.partition("behind ")
        match how:
            case "again" | "once more":
                return self._make.again(self._made[name])
            case "with another content":
                return self._make.again(self._made[name], digest=b"another!")
        kinds: dict[str, list[str]] = {"mds": [], "customData": [], "pdsData": []}
        for part in re.findall(r"`(.*?)`", brings):
            kind, _, key = part.rpartition(":")
            kinds[kind or "mds"].append(key)
        made = self._make(
            int(name[1:]), name[0], identity=name, mds=kinds["mds"], custom=kinds["customData"], pds=kinds["pdsData"]
        )
        made = replace(made, previous=previous or None)
        assert how in ("", "fails")
        if how:
            self._unit.handler.fail(made, PermanentError("it fails for good"))
        self._made[name] = made
        return made

    def _told(self, left: Notification | DeadLetter) -> str:
        if isinstance(left, DeadLetter):
            return f"dead letter `{left.reason.value}`"
        *_, marks = (marks for envelope, _, marks, _ in self._unit.handler.seen if envelope.envelope_id == left.notification_id)
        incomplete = f" incomplete `{marks.incomplete}`" if marks.incomplete else ""
        return f"{left.notification_id}{incomplete}{' late' if marks.late else ''}"


@pytest.mark.parametrize(("paragraph", "rows"), EXAMPLES, ids=[f"{at}" for at in range(len(EXAMPLES))])
def test_what_leaves_is_what_the_page_says(paragraph: str, rows: list[Row]) -> None:
    played = Played(paragraph)
    happened = [(arrives, brings, ", ".join(played.leaves(arrives, brings))) for arrives, brings, _ in rows]
    assert happened == rows


def test_every_strategy_has_an_example() -> None:
    text = "".join(paragraph for paragraph, _ in EXAMPLES)
    assert [name for name in STRATEGIES if f"`{name}`" not in text] == []


def test_every_table_of_what_arrives_and_leaves_is_an_example() -> None:
    assert len(re.findall(r"^\| arrives \|", DESIGN.read_text(encoding="utf-8"), re.MULTILINE)) == len(EXAMPLES)
