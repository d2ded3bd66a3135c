"""Compares what the receiver took with the notifications that it should have: all there, none twice, in order."""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from guardian.headers import NOTIFICATION_ID, find_unit, own_texts
from notification_service.connectors.line_format import Defect, decode_line
from notification_service.simulator.receiver.receiver import CALLS, TAKEN, UNITS, read_lines
from resequencer.record import Headers, Origin, Partition

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found; the faults are texts `unit notification-id`.

    Attributes:
        units: The number of units with notifications.
        notifications: The number of notifications that were to come; one that comes twice in the files is one.
        taken: The number of notifications that were taken.
        refused: The number of units that the receiver refused as not eligible; their notifications may be missing.
        lost: Was not taken, though its unit was not refused.
        doubled: Was taken more than once; here once for each further time.
        misplaced: Was taken after a notification of its unit that comes behind it.
        repeated: The number of calls under a key that was taken already.
        needless: Of them those without a reason that the receiver knows, for the caller had got an answer: it died with it,
            or did not keep it. It is no fault where callers die.
        unexpected: Is none of the notifications of its unit, or came without a key.
    """

    units: int
    notifications: int
    taken: int
    refused: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    misplaced: tuple[str, ...]
    unexpected: tuple[str, ...]
    repeated: int = 0
    needless: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.misplaced or self.unexpected)

    def table(self) -> str:
        """Return a line for each number; a line of faults ends with the first few of them."""
        numbers = {"units": self.units, "notifications": self.notifications, "taken": self.taken, "units refused": self.refused}
        lines = [f"{name:<14}{number:>10}" for name, number in (numbers | {"repeated": self.repeated}).items()]
        faults = {
            "lost": self.lost,
            "doubled": self.doubled,
            "out of order": self.misplaced,
            "unexpected": self.unexpected,
            "needless calls": self.needless,
        }
        lines += [f"{name:<14}{len(found):>10}  {', '.join(found[:_EXAMPLES])}".rstrip() for name, found in faults.items()]
        return "\n".join(lines)


def compare(directory: Path, expected: Iterable[tuple[str, str]]) -> Comparison:
    """Compare what the receiver of the directory took with pairs of unit and notification id, which are in order per unit."""
    places: dict[str, dict[str, int]] = {}
    for unit, key in expected:
        known = places.setdefault(unit, {})
        known.setdefault(key, len(known))
    taken: dict[str, list[str | None]] = {}
    for line in read_lines(directory / TAKEN):
        taken.setdefault(line["unit"], []).append(line["key"])
    refused = {line["unit"] for line in read_lines(directory / UNITS) if line["is"] == "refused"}
    lost: list[str] = []
    doubled: list[str] = []
    misplaced: list[str] = []
    unexpected: list[str] = []
    for unit in places | taken:
        wanted, seen, last = places.get(unit, {}), set[str](), -1
        for found in taken.get(unit, ()):
            if found is None or found not in wanted:
                unexpected.append(f"{unit} {found}")
            elif found in seen:
                doubled.append(f"{unit} {found}")
            else:
                if wanted[found] < last:
                    misplaced.append(f"{unit} {found}")
                seen.add(found)
                last = max(last, wanted[found])
        if unit not in refused:
            lost += (f"{unit} {each}" for each in wanted if each not in seen)
    repeated, needless = _repeats(directory)
    return Comparison(
        units=len(places),
        notifications=sum(map(len, places.values())),
        taken=sum(map(len, taken.values())),
        refused=len(refused),
        lost=tuple(lost),
        doubled=tuple(doubled),
        misplaced=tuple(misplaced),
        unexpected=tuple(unexpected),
        repeated=repeated,
        needless=needless,
    )


def _repeats(directory: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many calls came under a key that was taken already, and those that were called for without a reason."""
    calls = [(line["is"], f"{line['unit']} {line['key']}") for line in read_lines(directory / CALLS)]
    repeated = Counter(name for kind, name in calls if kind == "repeated")
    needless = repeated - Counter(name for kind, name in calls if kind == "unanswered")
    return repeated.total(), tuple(needless.elements())


def read_notifications(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield unit and notification id of each line `{"key": …, "headers": {"notification-id": …}, "value": …}`.

    Raises:
        OSError: A file cannot be read.
        ValueError: A line is no such line; the text names file and line.
    """
    for path in paths:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                read = decode_line(line)
                yield _pair_of(*(None, ()) if isinstance(read, Defect) else (read.key, read.headers), f"{path}, line {number}")


def _expected(options: Namespace) -> Iterator[tuple[str, str]]:
    if options.topic is None:
        return read_notifications(options.notifications)

    return read_topic(options.bootstrap, options.topic)


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 0 if there is no fault, else 1."""
    parser = ArgumentParser(
        prog="python -m notification_service.simulator.receiver check",
        description="Compare what a receiver took with files, or with a topic of Kafka.",
    )
    parser.add_argument("--directory", type=Path, required=True, help="of the receiver")
    parser.add_argument("notifications", type=Path, nargs="*", help="files of JSON lines, in the order of their notifications")
    parser.add_argument("--topic", help="the topic of the notifications, instead of files")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="of its broker (default: %(default)s)")
    options = parser.parse_args(arguments)
    if bool(options.notifications) == bool(options.topic):
        parser.error("name files of notifications, or --topic")
    try:
        found = compare(options.directory, _expected(options))
    except (OSError, ValueError) as error:
        print(f"check: {error}")  # noqa: T201 - a command's output.
        return 1
    print(found.table())  # noqa: T201 - a command's output.
    return 0 if found.is_good else 1


_POLL_MS = 500
_OPTIONS: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}


def read_topic(bootstrap: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yield unit and notification id of each committed record, in the order of its partition, up to the end as of now.

    Raises:
        ValueError: There is no such topic, or a record is no notification; the text names it.
    """
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, **_OPTIONS)) as reader:
        numbers = reader.partitions_for_topic(topic)
        if not numbers:
            raise ValueError(f"topic {topic} does not exist at {bootstrap}")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < end for each, end in ends.items()):
            for records in reader.poll(timeout_ms=_POLL_MS).values():
                for record in records:
                    position = Origin(Partition(record.topic, record.partition), record.offset)
                    yield _pair_of(record.key, tuple(record.headers), str(position))


def _pair_of(key: bytes | None, headers: Headers, where: str) -> tuple[str, str]:
    texts = own_texts(headers)
    unit = find_unit(key, texts)
    if unit is None or NOTIFICATION_ID not in texts:
        raise ValueError(f"{where}: no notification with key and notification-id")
    return unit, texts[NOTIFICATION_ID]
