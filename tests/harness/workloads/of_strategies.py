"""The strategies of a plan: also PREVIOUS, WINDOW, and numbers that begin with 0 or with any, which payments do not need.

The input is IPF's envelopes. With PREVIOUS an envelope has the id of the one before it in a member of its own, which the format
does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.event import Refusal
from resequencer.record import Record
from resequencer.strategies.port import Strategy
from resequencer.strategies.window import OrderBy

if TYPE_CHECKING:
    from harness.service_under_test import Plan


class _Linked(msgspec.Struct):
    previous: str | None = None


_read_link = msgspec.json.Decoder(_Linked).decode


class LinkedDecoder(EnvelopeDecoder):
    """Decodes envelopes that name the one before them."""

    def decode(self, record: Record) -> DataEnvelope | Refusal:
        event = super().decode(record)
        return event if isinstance(event, Refusal) else replace(event, previous=_read_link(record.value or b"").previous)


def strategy_of(plan: Plan) -> Strategy:
    return make_strategy(StrategySettings(plan.strategy, plan.first_sequence, order_by=OrderBy.SEQUENCE))


def decoder_of(plan: Plan, strategy: Strategy) -> EnvelopeDecoder:
    settings = DecodingSettings(needs_sequence=strategy.needs_sequence, first_sequence=1 if plan.first_sequence == 1 else 0)
    return LinkedDecoder(settings) if plan.strategy == "PREVIOUS" else EnvelopeDecoder(settings)
