"""Runs of the strategies that payments do not need: PREVIOUS, WINDOW, and numbers that begin with 0 or with any.

The input is IPF's envelopes. With PREVIOUS an envelope has the id of the one before it in a member of its own, which the format
does not read.
"""

from random import Random

import msgspec
from harness.service_under_test import Plan
from harness.workloads.shuffled import Workload, workload
from msgspec.structs import replace

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.event import Refusal
from resequencer.record import Record
from resequencer.strategies.port import Strategy
from resequencer.strategies.window import OrderBy

_STRATEGIES = ("PREVIOUS", "PREVIOUS", "WINDOW", "WINDOW", "SEQUENCE", "STRICT_SEQUENCE")
_WINDOW_MS = 2_000


class _Linked(msgspec.Struct):
    previous: str | None = None


_read_link = msgspec.json.Decoder(_Linked).decode


class LinkedDecoder(EnvelopeDecoder):
    """Decodes envelopes that name the one before them."""

    def decode(self, record: Record) -> DataEnvelope | Refusal:
        event = super().decode(record)
        return event if isinstance(event, Refusal) else replace(event, previous=_read_link(record.value).previous)


def workload_of_strategies(seed: int, max_units: int) -> Workload:
    """Return the input of a seed for one of these strategies."""
    work = workload(seed, max_units, _STRATEGIES, Random(f"first {seed}").choice((0, 0, None)))
    if work.plan.strategy != "WINDOW":
        return work
    resequencer = replace(work.plan.resequencer, stash_timeout_ms=_WINDOW_MS)
    return work._replace(plan=replace(work.plan, resequencer=resequencer))


def strategy_of(plan: Plan) -> Strategy:
    return make_strategy(StrategySettings(plan.strategy, plan.first_sequence, order_by=OrderBy.SEQUENCE))


def decoder_of(plan: Plan, strategy: Strategy) -> EnvelopeDecoder:
    settings = DecodingSettings(needs_sequence=strategy.needs_sequence, first_sequence=1 if plan.first_sequence == 1 else 0)
    return LinkedDecoder(settings) if plan.strategy == "PREVIOUS" else EnvelopeDecoder(settings)
