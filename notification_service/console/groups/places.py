"""Places in the completions as texts: the ids of events.

`0:12,3:7` says that reading goes on at offset 12 of partition 0 and at offset 7 of partition 3. All partitions are named: so one
id tells exactly which records were sent, in whatever order those of different partitions came. Of a file, bytes follow the `0:`.
"""

import re

from notification_service.aggregation.completions import Place

MOST_CHARACTERS = 16_384
_TEXT = re.compile(r"\d{1,6}:\d{1,18}(?:,\d{1,6}:\d{1,18})*", re.ASCII)


class NoPlace(ValueError):
    """The text is no place."""


def place_text(place: Place) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(place.items()))


def place_of(text: str) -> Place:
    """Raises NoPlace: The text was not made by `place_text`."""
    if len(text) > MOST_CHARACTERS or not _TEXT.fullmatch(text):
        raise NoPlace(text[:100])
    pairs = [each.split(":") for each in text.split(",")]
    place = {int(number): int(offset) for number, offset in pairs}
    if len(place) < len(pairs):
        raise NoPlace(text[:100])
    return place
