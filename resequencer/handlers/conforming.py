"""Making a value conform to a schema type, whatever came in.

The value is untrusted JSON. Children come out in the schema's order; a single value and an array are both accepted where
an element may repeat, and an array comes out; what the schema refuses is left out. A mandatory text that is missing is
NOTPROVIDED; where that is no valid value either, the element around it is left out.
"""

from __future__ import annotations

from typing import TypeAlias

from resequencer.handlers.complex_types import Choice, Element, Sequence, Type

Json: TypeAlias = "str | dict[str, Json] | dict[str, str] | list[Json]"


def conform(value: object, kind: Type) -> Json | None:
    """The part of the value that is valid as `kind`, or None if none is. Never raises, whatever JSON the value is."""
    if isinstance(kind, Sequence):
        return _conform_sequence(value, kind)
    if isinstance(kind, Choice):
        return _conform_choice(value, kind)
    return kind.conform(value)


def _conform_sequence(value: object, kind: Sequence) -> dict[str, Json] | None:
    children = _children(value, kind)
    conformed: dict[str, Json] = {}
    has_substance = False
    for element in kind.elements:
        child = _conform_element(children, element)
        if child is not None:
            has_substance = True
        elif element.is_required:
            child = _placeholder(element)
            if child is None:
                return None
        else:
            continue
        conformed[element.name] = child
    return conformed if has_substance else None


def _conform_choice(value: object, kind: Choice) -> dict[str, Json] | None:
    children = _children(value, kind)
    for element in kind.elements:
        child = _conform_element(children, element)
        if child is not None:
            return {element.name: child}
    return None


def _children(value: object, kind: Sequence | Choice) -> dict[str, object]:
    """The value's children by name; for a value without any, itself under the names for which it may stand."""
    if isinstance(value, dict) and not (kind.bare and "value" in value):
        return value
    return dict.fromkeys(kind.bare, value)


def _conform_element(children: dict[str, object], element: Element) -> Json | None:
    if element.name in children:
        conformed = _conform_occurrences(children[element.name], element)
        if conformed is not None:
            return conformed
    if element.formerly in children:
        return _conform_occurrences(children[element.formerly], element)
    return None


def _conform_occurrences(value: object, element: Element) -> Json | None:
    if element.most == 1:
        return conform(value, element.type)
    occurrences: list[Json] = []
    for each in value if isinstance(value, list) else (value,):
        conformed = conform(each, element.type)
        if conformed is not None:
            occurrences.append(conformed)
            if len(occurrences) == element.most:
                break
    return occurrences or None


def _placeholder(element: Element) -> Json | None:
    if isinstance(element.type, Sequence | Choice):
        return None
    return element.type.placeholder
