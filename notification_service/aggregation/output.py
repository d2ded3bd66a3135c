"""Output of a turn as records for the transport."""

from collections.abc import Sequence

from guardian.pending_output import output_record
from guardian.ports import Channel, OutputRecord
from notification_service.aggregation.core import Completion
from resequencer.dead_letter import DeadLetter


def numbered(output: Sequence[Completion | DeadLetter], first: int) -> list[OutputRecord]:
    """Return the records with numbers from `first` on."""
    return [_record(number, each) for number, each in enumerate(output, first)]


def _record(number: int, each: Completion | DeadLetter) -> OutputRecord:
    if isinstance(each, Completion):
        return OutputRecord(number, Channel.NOTIFICATIONS, each.key, each.headers, each.value)
    return output_record(number, each, 0)
