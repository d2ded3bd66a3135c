"""The schema's types as msgspec types. A value that they accept needs no change, and is read and written in C.

They accept less than `conform`, and never more, with three exceptions: blank strings, characters that XML forbids, and elements
without a child. `PartReader` checks the encoded text for these.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from notification_service.payments.iso20022.complex_types import Choice, Element, Sequence, Type
from notification_service.payments.iso20022.simple_types import (
    Amount,
    Codes,
    Date,
    Decimal,
    Indicator,
    NumericText,
    Pattern,
    Text,
)

_DAY = (
    "(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    "|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"  # No 29 February: its validity depends on the year.
)
_TIME = r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9])?"


def strict_type(kind: Type) -> Any:
    """Return the msgspec type of a schema type. Its values are encoded as the JSON that `conform` would make of them."""
    strict: Any
    match kind:
        case Sequence() | Choice():
            strict = _struct(kind)
        case Text():
            strict = Annotated[str, Meta(min_length=1, max_length=kind.max_length)]
        case Pattern():
            strict = _matching(kind.pattern.pattern)
        case NumericText():
            strict = _matching(f"[0-9]{{1,{kind.max_digits}}}")
        case Codes():
            strict = Literal.__getitem__(tuple(sorted(kind.codes)))
        case Decimal():
            strict = _matching(_plain_decimal(kind))
        case Date():
            strict = _matching(_DAY + _TIME if kind.has_time else _DAY)
        case Indicator():
            strict = Literal["true", "false"]
        case Amount():
            strict = _amount(kind)
        case _:
            raise AssertionError(f"{kind} has no strict type")
    return strict


@cache
def _struct(kind: Sequence | Choice) -> Any:
    """Make a struct. It skips unknown children, but refuses them if a child has a former name or may be given directly."""
    return msgspec.defstruct(
        kind.name,
        [_field(each, is_optional=isinstance(kind, Choice) or not each.is_required) for each in kind.elements],
        namespace={"__post_init__": _refuse_two(kind)} if isinstance(kind, Choice) else None,
        forbid_unknown_fields=bool(kind.bare) or any(each.formerly is not None for each in kind.elements),
        kw_only=True,
        gc=False,
    )


def _field(element: Element, *, is_optional: bool) -> Any:
    strict = strict_type(element.type)
    if element.most > 1:
        strict = Annotated[GenericAlias(list, (strict,)), Meta(min_length=1, max_length=element.most)]
    return (element.name, strict | UnsetType, UNSET) if is_optional else (element.name, strict)


def _refuse_two(choice: Choice) -> Callable[[Any], None]:
    """Return a check that refuses more than one alternative. No alternative at all shows later as an element without a child."""
    alternatives = attrgetter(*[each.name for each in choice.elements])

    # Compared by identity: a comparison with a struct takes ten times as long.
    def refuse_two(chosen: Any) -> None:
        if len([each for each in alternatives(chosen) if each is not UNSET]) > 1:
            raise ValueError("more than one of a choice")

    def refuse_both(chosen: Any) -> None:
        one, other = alternatives(chosen)
        if one is not UNSET and other is not UNSET:
            raise ValueError("more than one of a choice")

    return refuse_both if len(choice.elements) == 2 else refuse_two  # Nearly all have two alternatives.


def _amount(kind: Amount) -> Any:
    fields = [("Ccy", strict_type(kind.currency)), ("value", strict_type(kind.amount))]
    return msgspec.defstruct(kind.name, fields, kw_only=True, gc=False)


def _matching(pattern: str) -> Any:
    return Annotated[str, Meta(pattern=rf"\A(?:{pattern})\Z")]


def _plain_decimal(kind: Decimal) -> str:
    """Return a pattern with so few digits on either side of the point that leading and trailing zeros do not matter."""
    fraction = min(kind.fraction_digits, kind.total_digits // 3)
    sign = "[+-]?" if kind.is_signed else r"\+?"
    point = rf"(?:\.[0-9]{{1,{fraction}}})?" if fraction else ""
    return f"{sign}[0-9]{{1,{kind.total_digits - fraction}}}{point}"
