"""The section `events`: the format of the records that come, and the decoder for it."""

from typing import Annotated

import msgspec

from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import MappedDecoder, Mapping
from resequencer.event import Decoder
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice
from resequencer.strategies.port import Strategy

IPF, CLOUDEVENTS, MAPPED = "ipf", "cloudevents", "mapped"


class EventsSettings(msgspec.Struct, frozen=True):
    """`format` is ipf, cloudevents or mapped; `mapped` is used by the last."""

    format: Annotated[str, Key(Choice((IPF, CLOUDEVENTS, MAPPED)))]
    mapped: Annotated[Mapping, Section("mapped")]


def decoding_settings(strategy: Strategy, first_sequence: int | None, max_value_bytes: int) -> DecodingSettings:
    """Return what records must have for this strategy. `first_sequence` None: numbers may begin with any."""
    needs_time = bool(getattr(strategy, "needs_time", False))
    return DecodingSettings(strategy.needs_sequence, max_value_bytes, 1 if first_sequence == 1 else 0, needs_time)


def find_decoder(events: EventsSettings, settings: DecodingSettings) -> Decoder | None:
    """Return the decoder of the format; None for IPF's, which is read where payments are known."""
    if events.format == CLOUDEVENTS:
        return CloudEventDecoder(settings)
    return MappedDecoder(settings, events.mapped) if events.format == MAPPED else None
