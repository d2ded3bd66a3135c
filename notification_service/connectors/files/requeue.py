"""Puts the records of dead letters back into the input that they came from, each once, even across crashes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from guardian.ports import TransportRefused
from notification_service.connectors.dead_letters.actions import (
    Edit,
    Editing,
    LetterId,
    Requeueing,
    StoredDeadLetter,
)
from notification_service.connectors.dead_letters.port import Outcome, Sign, portions
from notification_service.connectors.files.dead_letters import ActionsFile, DeadLettersFile
from notification_service.connectors.files.operations import FileOperations
from notification_service.connectors.files.partition import PartitionAppender, Wanted
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, encode_line
from resequencer.record import Origin, OutputNumber, Partition


class Requeue:
    """Requeues dead letters in three steps, each durable before the next.

    1. The intent is recorded, with the length of the input and, if a person edited the record, its new value.
    2. The records are appended to the input, except those whose `requeued-from` is already in a line beyond that length.
    3. The records' positions in the input are recorded.

    After a crash `resume` repeats steps 2 and 3. The caller holds a lock, and has checked that the records may be requeued.
    """

    def __init__(
        self,
        settings: FileSettings,
        letters: DeadLettersFile,
        actions: ActionsFile,
        files: FileOperations,
        sign: Sign,
    ) -> None:
        self._in_directory = settings.in_directory
        self._max_value_bytes = settings.max_value_bytes
        self._letters = letters
        self._actions = actions
        self._files = files
        self._sign = sign

    def resume(self) -> Iterator[Outcome]:
        """Complete the requeues that were begun and not ended."""
        begun = {each.letter_id: each for each in self._actions.last().values() if isinstance(each, Requeueing)}
        if begun:
            letters = (each for each in self._letters.letters() if each.letter_id in begun)
            lines = {each.letter_id: _line(_as_intended(each, begun[each.letter_id])) for each in letters}
            yield from self._complete(list(begun.values()), lines)

    def requeue(self, letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        """Requeue the letters in this order, a portion at a time; a portion's outcomes are yielded once it is durable."""
        for portion in portions(letters):
            too_large = {each.number: problem for each in portion if (problem := each.find_excess(self._max_value_bytes))}
            yield from (Outcome(number, None, problem) for number, problem in too_large.items())
            begun, refused = self._begin([each for each in portion if each.number not in too_large])
            if begun:
                self._actions.append(begun)
            yield from refused
            yield from self._complete(begun, {each.letter_id: _line(each) for each in portion})

    def _begin(self, letters: Sequence[StoredDeadLetter]) -> tuple[list[Requeueing], list[Outcome]]:
        """Return the intents, and the outcomes of the letters whose input file cannot be appended to."""
        begun, refused, sign = list[Requeueing](), list[Outcome](), self._sign()
        for partition, group in _by_partition(letters, lambda each: each.letter.record.origin.partition.number):
            try:
                beyond = self._end(partition).length()
            except TransportRefused as error:
                refused += [Outcome(each.number, None, str(error)) for each in group]
            else:
                begun += [each.requeueing(*sign, partition, beyond) for each in group]
        return begun, refused

    def _complete(self, intents: Sequence[Requeueing], lines: Mapping[LetterId, bytes]) -> Iterator[Outcome]:
        for partition, group in _by_partition(intents, lambda each: each.partition):
            wanted = {each.number: Wanted(each.beyond, lines.get(each.letter_id)) for each in group}
            try:
                found = self._end(partition).append_missing(wanted)
            except TransportRefused as error:
                yield from (Outcome(each.number, None, str(error)) for each in group)
            else:
                yield from self._end_all(group, wanted, found)

    def _end_all(
        self, intents: Sequence[Requeueing], wanted: Mapping[str, Wanted], found: Mapping[str, int]
    ) -> Iterator[Outcome]:
        sign = self._sign()
        done = [each.ended(*sign, _position(each, found[each.number])) for each in intents if each.number in found]
        if done:
            self._actions.append(done)
        yield from (Outcome(each.number, each.position, done=each.state) for each in done)
        for each in intents:
            if each.number not in found:
                yield Outcome(each.number, None, _MINGLED if wanted[each.number].line else f"{_GONE} {self._letters.path}")

    def _end(self, partition: int) -> PartitionAppender:
        return PartitionAppender(self._in_directory / f"partition-{partition}.jsonl", self._files)


_MINGLED = "another program wrote to the input at the same moment and its bytes are inside the line. Try again"
_GONE = "a requeue was begun, its record is not in the input, and the dead letter was moved away. Put the dead letter back into"
_Item = TypeVar("_Item")


def _by_partition(items: Iterable[_Item], partition: Callable[[_Item], int]) -> Iterator[tuple[int, list[_Item]]]:
    """Group the items by partition; within a partition they keep their order."""
    return ((number, list(group)) for number, group in groupby(sorted(items, key=partition), partition))


def _line(letter: StoredDeadLetter) -> bytes:
    return encode_line(Line(letter.value_to_requeue, letter.letter.record.key, letter.headers_to_requeue))


def _as_intended(letter: StoredDeadLetter, intent: Requeueing) -> StoredDeadLetter:
    return letter.edited(Edit(intent.value, intent.because, intent.proposed_by)) if isinstance(intent, Editing) else letter


def _position(intent: Requeueing, offset: int) -> str:
    number = OutputNumber.find(intent.number)
    # A number that a person wrote into the file may be none. The intent has the partition, too.
    partition = Partition("", intent.partition) if number is None else number.partition
    return str(Origin(partition, offset))
