"""Partitions that cannot be read on because a producer left a transaction open in them. Pure."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from resequencer.clock import Instant, instant_text
from resequencer.record import Partition

_NOTED_AFTER_MS = 5_000
"""Most transactions end within a second or two; they are not reported."""

_LOG = logging.getLogger("resequencer.connectors")


class _Stalled(NamedTuple):
    offset: int
    since: Instant
    behind: int
    is_told: bool


class OpenTransactions:
    """Compares the ends at each poll, and remembers since when the decided end has stayed before the log's end."""

    def __init__(self) -> None:
        self._stalled: dict[Partition, _Stalled] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each partition that has stood still for `_NOTED_AFTER_MS`."""
        return tuple(_text(partition, each) for partition, each in sorted(self._stalled.items()) if each.is_told)

    def note(self, ends: Mapping[Partition, int], log_ends: Mapping[Partition, int], now: Instant) -> None:
        """Take note of the ends after a poll. `ends` are the ends of the decided parts, `log_ends` those of the logs."""
        open_in = {each: end for each, end in ends.items() if end < log_ends[each]}
        stalled = {each: _Stalled(end, now, log_ends[each] - end, is_told=False) for each, end in open_in.items()}
        for partition, at in stalled.items():
            before = self._stalled.get(partition)
            if before is not None and before.offset == at.offset:
                stalled[partition] = self._gone_on(partition, before, at)
        for partition, before in self._stalled.items():
            if before.is_told and (partition not in stalled or not stalled[partition].is_told):
                _LOG.warning(
                    "%s: the open transaction at offset %d has ended, or another worker reads the partition now",
                    partition,
                    before.offset,
                )
        self._stalled = stalled

    def _gone_on(self, partition: Partition, before: _Stalled, now: _Stalled) -> _Stalled:
        is_told = before.is_told or now.since - before.since >= _NOTED_AFTER_MS
        at = _Stalled(now.offset, min(before.since, now.since), now.behind, is_told)
        if is_told and not before.is_told:
            _LOG.warning("%s", _text(partition, at), extra={"partition": str(partition)})
        return at


def _text(partition: Partition, at: _Stalled) -> str:
    what = f"{at.behind} offset{'' if at.behind == 1 else 's'} from there on cannot be read before it ends"
    where = f"--topic {partition.topic} --partition {partition.number}"
    ask = f"kafka-transactions.sh --bootstrap-server … describe-producers {where}"
    end = f"abort {where} --start-offset {at.offset}"
    return (
        f"{partition} has stood at offset {at.offset} since {instant_text(at.since)}: a producer left a transaction open, and "
        f"{what}. The brokers end it after that producer's transaction.timeout.ms. '{ask}' names the producer; the same script "
        f"ends the transaction with '{end}'"
    )
