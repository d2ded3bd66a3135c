"""Sequences and choices of elements: the complex types of ISO 20022 schemas as data, and what each makes of untrusted JSON.

Children come out in the schema's order; a single value and an array are both accepted where an element may repeat, and an
array comes out; what the schema refuses is left out. A mandatory text that is missing is NOTPROVIDED; where that is no valid
value either, the element around it is left out. `conform` never raises, whatever JSON the value is, and of null makes None.

A payment's report has some sixty of them, and hundreds that are allowed and missing: what is missing costs a look and no call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from resequencer.handlers.simple_types import SimpleType

Json: TypeAlias = "str | dict[str, Json] | dict[str, str] | list[Json]"


class Element:
    """A child: `most` is how often it may occur, `formerly` an older name under which a sequence accepts it. Not to be changed.

    `conform` gives what is valid of the value or values under its name, None where nothing is.
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


class Sequence(msgspec.Struct, frozen=True):
    """Children in this order. `bare` names the child for which a value without children stands."""

    name: str
    elements: tuple[Element, ...]
    bare: tuple[str, ...] = ()
    placeholder: None = None

    def conform(self, value: object) -> dict[str, Json] | None:
        children = _children(value, self.bare)
        if not children:
            return None
        conformed: dict[str, Json] = {}
        has_substance = False
        for element in self.elements:
            child = element.conform(children[element.name]) if element.name in children else None
            if child is None and element.formerly in children:
                child = element.conform(children[element.formerly])
            if child is not None:
                has_substance = True
            elif element.is_required:
                child = element.type.placeholder
                if child is None:
                    return None
            else:
                continue
            conformed[element.name] = child
        return conformed if has_substance else None


class Choice(msgspec.Struct, frozen=True):
    """Exactly one of the children. `bare` names those for which a value without children may stand, the first that fits."""

    name: str
    elements: tuple[Element, ...]
    bare: tuple[str, ...] = ()
    placeholder: None = None

    def conform(self, value: object) -> dict[str, Json] | None:
        children = _children(value, self.bare)
        for element in self.elements:
            child = element.conform(children[element.name]) if element.name in children else None
            if child is not None:
                return {element.name: child}
        return None


Type: TypeAlias = Sequence | Choice | SimpleType


def _children(value: object, bare: tuple[str, ...]) -> dict[str, object]:
    """The value's children by name; for a value without any, itself under the names for which it may stand."""
    if isinstance(value, dict) and not (bare and "value" in value):
        return value
    return dict.fromkeys(bare, value) if value is not None else {}
