"""Output of a turn as records for the transport."""

from collections.abc import Sequence

from aggregation.core.aggregate import Completion
from connectors.port import Channel, OutputRecord
from domain.dead_letter import DeadLetter
from guardian.pending_output import output_record


def numbered(output: Sequence[Completion | DeadLetter], first: int) -> list[OutputRecord]:
    """Return the records with numbers from `first` on."""
    return [_record(number, each) for number, each in enumerate(output, first)]


def _record(number: int, each: Completion | DeadLetter) -> OutputRecord:
    if isinstance(each, Completion):
        return OutputRecord(number, Channel.NOTIFICATIONS, each.key, each.headers, each.value)
    return output_record(number, each, 0)
