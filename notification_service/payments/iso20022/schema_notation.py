"""The notation of the schema's table.

An element is written `name type`. A plain `name` is mandatory and occurs once. `name?` is optional. `name*` is optional and may
repeat, `name*7` at most seven times. `name+` is mandatory and may repeat. `BICFI/BIC?` was called BIC in an earlier version of
the message and is still read under that name. A type refers to types defined before it.
"""

import re
from collections.abc import Iterable

from notification_service.payments.iso20022.complex_types import Choice, Element, Sequence, Type

_ELEMENT = re.compile(r"(?P<name>\w+)(?:/(?P<formerly>\w+))?(?P<mark>[?*+]?)(?P<most>[0-9]*) (?P<type>\w+)")
UNBOUNDED = 1_000_000_000


class Schema:
    """Types by their ISO names. A type is added after the types that it refers to."""

    def __init__(self, known: Iterable[Type]) -> None:
        self.types: dict[str, Type] = {each.name: each for each in known}

    def sequence(self, name: str, *elements: str, bare: tuple[str, ...] = ()) -> Sequence:
        made = Sequence(name, tuple(map(self._element, elements)), bare)
        self.types[name] = made
        return made

    def choice(self, name: str, *elements: str, bare: tuple[str, ...] = ()) -> Choice:
        made = Choice(name, tuple(map(self._element, elements)), bare)
        self.types[name] = made
        return made

    def _element(self, text: str) -> Element:
        match = _ELEMENT.fullmatch(text)
        assert match is not None, text
        mark = match["mark"]
        most = int(match["most"] or UNBOUNDED) if mark in ("*", "+") else 1
        return Element(match["name"], self.types[match["type"]], most, match["formerly"], is_required=mark in ("", "+"))
