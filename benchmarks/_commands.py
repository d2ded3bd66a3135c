"""Makes the commands of groups: facts as the service makes them, of payments that each have one final status."""

import heapq
from collections.abc import Iterator
from enum import StrEnum
from itertools import count
from random import Random
from typing import NamedTuple

import msgspec

from guardian.headers import AMOUNT, GROUP_ID, GROUP_TOTAL, MEMBER, PROCESSING_ENTITY, SOURCE_POSITION, TRANSACTION_STATUS
from resequencer.record import Headers

SEED = 7
_HUNDRED = 100
_DOUBLED = 0.01
_REJECTED = 0.05
_BEHIND = 500


class Shape(StrEnum):
    """How commands are spread over groups: all in one, each in its own, or a hundred in each, interleaved with Zipf keys."""

    ONE = "one group"
    SINGLES = "groups of one"
    HUNDREDS = "groups of a hundred"

    def total(self, members: int) -> int:
        """Return how many members each group has of so many in all."""
        return {Shape.ONE: members, Shape.SINGLES: 1, Shape.HUNDREDS: min(_HUNDRED, members)}[self]


class Sent(NamedTuple):
    """A command as a record of the topic."""

    key: str
    member: str
    headers: Headers
    body: bytes


def commands_of(shape: Shape, members: int, seed: int = SEED) -> Iterator[Sent]:
    """Yield the commands of so many members. One in a hundred comes twice, the second time up to some hundred places later."""
    chance, total = Random(seed), shape.total(members)
    again: list[tuple[int, Sent]] = []
    for place, (group, number) in enumerate(_order(shape, members, chance)):
        sent = _command(f"{shape.name.lower()}-{group:07}", f"unit-{group:07}-{number:07}", total, chance)
        yield sent
        if chance.random() < _DOUBLED:
            heapq.heappush(again, (place + chance.randrange(_BEHIND), sent))
        while again and again[0][0] <= place:
            yield heapq.heappop(again)[1]
    yield from (sent for _, sent in sorted(again))


def _order(shape: Shape, members: int, chance: Random) -> Iterator[tuple[int, int]]:
    """Yield the group and the number of each member.

    In the groups of a hundred, the group of rank r has 1/r of the first one's rate until all of its members have come.
    """
    total = shape.total(members)
    if shape is Shape.HUNDREDS:
        groups = range(members // total)
        drawn = sorted((chance.random() * (group + 1), group) for group in groups for _ in range(total))
        numbers = [count() for _ in groups]
        yield from ((group, next(numbers[group])) for _, group in drawn)
    else:
        yield from (divmod(place, total) for place in range(members))


def _command(key: str, member: str, total: int, chance: Random) -> Sent:
    status = "RJCT" if chance.random() < _REJECTED else "ACCC"
    number = str(total)
    body = {
        "type": "status",
        "unit": member,
        "status": status,
        AMOUNT: f"{chance.randrange(1, 1_000_000)}.{chance.randrange(1, 100):02}",
        "currency": "EUR",
        "entity": "001",
        "original": {
            "OrgnlMsgId": f"MSG-{key}",
            "OrgnlMsgNmId": "pain.001.001.09",
            "OrgnlCreDtTm": "2026-03-29T09:00:35.941Z",
            "OrgnlNbOfTxs": number,
        },
        "instruction": {"OrgnlPmtInfId": f"PMT-{key}", "OrgnlNbOfTxs": number},
        "initiatingParty": {"Nm": f"Customer {chance.randrange(1_000)} GmbH", "Id": {"OrgId": {"AnyBIC": "DEUTDEFFXXX"}}},
    }
    headers = {
        MEMBER: member,
        TRANSACTION_STATUS: status,
        PROCESSING_ENTITY: "001",
        GROUP_ID: key,
        GROUP_TOTAL: number,
        SOURCE_POSITION: f"envelopes-0@{chance.randrange(1_000_000)}",
    }
    return Sent(key, member, tuple((name, text.encode()) for name, text in headers.items()), msgspec.json.encode(body))
