"""Sequences and choices: the complex types of ISO 20022 schemas as data. Each converts untrusted JSON into valid JSON.

The result has the children in the schema's order, without those that the schema refuses. An element that may repeat accepts a
single value or an array, and becomes an array. A missing mandatory text becomes NOTPROVIDED; if that is not valid either, the
element around it is left out. `conform` never raises, whatever JSON the value is, and returns None for null.

A payment's report has some sixty elements; twice as many are allowed and missing. A missing element costs one look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from notification_service.payments.iso20022.simple_types import SimpleType

Json: TypeAlias = "str | dict[str, Json] | dict[str, str] | list[Json]"


class Element:
    """A child element. `most` is how often it may occur, `formerly` an older name under which a sequence accepts it. Immutable.

    `conform` returns the valid part of the value or values under its name, None if nothing is valid.
    """

    def __init__(self, name: str, kind: Type, most: int, formerly: str | None = None, *, is_required: bool) -> None:
        self.name = name
        self.type = kind
        self.most = most
        self.formerly = formerly
        self.is_required = is_required
        self.conform: Callable[[object], Json | None] = kind.conform if most == 1 else self._conform_each

    def _conform_each(self, value: object) -> Json | None:
        occurrences: list[Json] = []
        for each in value if isinstance(value, list) else (value,):
            conformed = self.type.conform(each)
            if conformed is not None:
                occurrences.append(conformed)
                if len(occurrences) == self.most:
                    break
        return occurrences or None


class Sequence:
    """Children in this order. `bare` names the child whose value may be given directly, without children. Immutable."""

    placeholder = None

    def __init__(self, name: str, elements: tuple[Element, ...], bare: tuple[str, ...] = ()) -> None:
        self.name = name
        self.elements = elements
        self.bare = bare
        # An older name comes after the newer name: a valid value under the newer name counts.
        self._known = tuple((known, each) for each in elements for known in (each.name, each.formerly) if known is not None)
        self._required = tuple(each for each in elements if each.is_required)

    def conform(self, value: object) -> dict[str, Json] | None:
        children = _children(value, self.bare)
        conformed: dict[str, Json] = {}
        for name, element in self._known:
            if name in children:
                child = element.conform(children[name])
                if child is not None:
                    conformed.setdefault(element.name, child)
        if not conformed:
            return None
        return self._completed(conformed) if self._required else conformed

    def _completed(self, conformed: dict[str, Json]) -> dict[str, Json] | None:
        """Add placeholders for missing mandatory children; None if one of them has no placeholder."""
        missing = [each for each in self._required if each.name not in conformed]
        if not missing:
            return conformed
        for each in missing:
            if each.type.placeholder is None:
                return None
            conformed[each.name] = each.type.placeholder
        return {each.name: conformed[each.name] for each in self.elements if each.name in conformed}


class Choice:
    """Exactly one of the children. `bare` names those whose value may be given directly; the first that fits counts.

    Immutable.
    """

    placeholder = None

    def __init__(self, name: str, elements: tuple[Element, ...], bare: tuple[str, ...] = ()) -> None:
        self.name = name
        self.elements = elements
        self.bare = bare

    def conform(self, value: object) -> dict[str, Json] | None:
        children = _children(value, self.bare)
        for element in self.elements:
            if element.name in children:
                conformed = element.conform(children[element.name])
                if conformed is not None:
                    return {element.name: conformed}
        return None


Type: TypeAlias = Sequence | Choice | SimpleType


def _children(value: object, bare: tuple[str, ...]) -> dict[str, object]:
    """Return the value's children by name. A value without children is returned under each of the `bare` names."""
    if isinstance(value, dict) and not (bare and "value" in value):
        return value
    return dict.fromkeys(bare, value) if value is not None else {}
