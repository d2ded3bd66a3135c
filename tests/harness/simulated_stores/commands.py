"""The commands of a simulated run: statuses of the payments of some messages, doubled, late and damaged ones, and closes."""

import json
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from kafka.partitioner.default import murmur2
from simulation.fakes.broker import Stored

from guardian.headers import MEMBER

PARTITIONS = 2
FINALS = frozenset({"ACCC", "RJCT", "CANC"})
_PATHS = (("ACTC", "ACSP", "ACCC"), ("ACSP", "ACCC"), ("RJCT",), ("ACTC", "RJCT"), ("ACSP", "ACCC", "RJCT"), ("PDNG", "CANC"))
_OF_NOTHING = {"OrgnlMsgId": "m", "OrgnlMsgNmId": "n"}
_DOUBLED, _LATE, _DAMAGED, _CLOSED, _STRAYED = 0.2, 0.08, 0.04, 0.04, 0.03


class Sent(NamedTuple):
    """A command and the partition that it goes to."""

    partition: int
    record: Stored


def partition_of(key: str) -> int:
    return int(murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS


def drawn_commands(random: Random) -> Sequence[Sent]:
    """Return all commands of a run, in the order in which they are sent."""
    queues: list[list[Sent]] = []
    for number in range(random.randint(2, 6)):
        key, total = f"g{number}", random.randint(1, 6)
        queues += [_of_member(random, key, f"u{member}", total) for member in range(total)]
        if random.random() < _CLOSED:
            queues.append([_sent(key, None, {"type": "close", "person": "p", "because": "b"})])
    commands: list[Sent] = []
    while queues:
        queue = random.choice(queues)
        commands.append(queue.pop(0))
        if commands and random.random() < _DOUBLED:
            commands.append(random.choice(commands))
        if random.random() < _DAMAGED:
            commands.append(_damaged(random))
        queues = [each for each in queues if each]
    return commands


def _of_member(random: Random, key: str, member: str, total: int) -> list[Sent]:
    statuses = [(status, False) for status in random.choice(_PATHS)]
    if random.random() < _LATE:
        statuses.append(("ACTC", True))
    amount = random.choice(("1", "2.50", "10.00001", None))
    return [_sent(key, member, _status(random, member, each, total, amount, is_late=late)) for each, late in statuses]


def _status(random: Random, member: str, status: str, total: int, amount: str | None, *, is_late: bool) -> dict[str, object]:
    original = {"OrgnlMsgId": "m", "OrgnlMsgNmId": "pain.001.001.09"}
    if random.random() > _STRAYED:
        original["OrgnlNbOfTxs"] = str(total)
    fields: dict[str, object] = {"type": "status", "unit": member, "status": status, "late": is_late, "original": original}
    if amount is not None and random.random() < 0.9:
        fields |= {"amount": amount, "currency": "EUR"}
    if random.random() < 0.9:
        fields["instruction"] = {"OrgnlPmtInfId": f"i{int(member[1:]) % 2}"}
    if random.random() < _STRAYED:
        del fields["original"]
    return fields


def _damaged(random: Random) -> Sent:
    key = f"g{random.randint(0, 2)}"
    return random.choice(
        (
            _sent(key, "u0", {"type": "status", "unit": "u0", "status": "NONE"}),
            _sent(key, "u1", {"type": "status", "unit": "u0", "status": "ACSP", "original": _OF_NOTHING}),
            Sent(partition_of(key), Stored(key.encode(), b"{", ((MEMBER, b"u0"),))),
            Sent(0, Stored(b"a/b", b"{}", ())),
            Sent(1, Stored(None, b"{}", ())),
        )
    )


def _sent(key: str, member: str | None, fields: dict[str, object]) -> Sent:
    headers = () if member is None else ((MEMBER, member.encode()),)
    return Sent(partition_of(key), Stored(key.encode(), json.dumps(fields).encode(), headers))
