"""The settings of a schedule: when it ticks, for which keys, what it requests, and where the requests go."""

from enum import StrEnum
from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.list_types import Names
from resequencer.keys.value_types import Choice, Object, Text, TopicName

_CRON = "five fields of cron: minute, hour, day of the month, month, day of the week, such as 0 18 * * MON-FRI"


class Missed(StrEnum):
    """What happens after ticks that no worker has begun within a minute: the last of them is made once, or none is."""

    ONCE = "once"
    NONE = "none"


class Waiting(StrEnum):
    """What waits for a receiver that takes nothing: all requests, or of each key the newest of those that were never called."""

    ALL = "all"
    NEWEST = "newest"


class KeysSettings(msgspec.Struct, frozen=True):
    """The keys of a schedule: `names`, or the keys of a lookup.

    Of the lookup's keys those of one `kind` are taken (the first part of the key; empty: all), and of these those whose row has
    the values of `where`, as a JSON object of texts by the names of the columns.
    """

    names: Annotated[tuple[str, ...], Key(Names("a list of different keys, such as [BANK_001]; empty: those of keys.lookup"))]
    lookup: Annotated[str, Key(Text(r"[a-z0-9-]{0,60}", "the name of a lookup, such as customers; empty: the keys are named"))]
    kind: Annotated[str, Key(Text(r"[^\x00-\x1f]{0,200}", "the first part of the lookup's keys, such as party; empty: all keys"))]
    where: Annotated[str, Key(Object())]


class Schedule(msgspec.Struct, frozen=True):
    """A schedule. Its requests go to `topic`, or as rows of the ledger to `receiver`. `payload` is a JSON object."""

    cron: Annotated[str, Key(Text(r"[A-Za-z0-9*/,#\- ]{0,200}", _CRON))]
    time_zone: Annotated[str, Key(Text(r"[A-Za-z0-9_+/-]{1,60}", "a time zone of the IANA database, such as Europe/Berlin"))]
    keys: Annotated[KeysSettings, Section("keys")]
    topic: Annotated[str, Key(TopicName("the requests go to a receiver"))]
    receiver: Annotated[str, Key(Text(r"[a-z0-9-]{0,60}", "the name of a receiver; empty: the requests go to a topic"))]
    payload: Annotated[str, Key(Object())]
    missed: Annotated[Missed, Key(Choice(tuple(Missed)))]
    waiting: Annotated[Waiting, Key(Choice(tuple(Waiting)))]
