"""The section `events`: the format of the records that come, and the decoder for it."""

from typing import Annotated

import msgspec

from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import MappedDecoder, Mapping
from resequencer.event import Decoder
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice

IPF, CLOUDEVENTS, MAPPED = "ipf", "cloudevents", "mapped"


class EventsSettings(msgspec.Struct, frozen=True):
    """`format` is ipf, cloudevents or mapped; `mapped` is used by the last."""

    format: Annotated[str, Key(Choice((IPF, CLOUDEVENTS, MAPPED)))]
    mapped: Annotated[Mapping, Section("mapped")]


def find_decoder(events: EventsSettings, settings: DecodingSettings) -> Decoder | None:
    """Return the decoder of the format; None for IPF's, which is read where payments are known."""
    if events.format == CLOUDEVENTS:
        return CloudEventDecoder(settings)
    return MappedDecoder(settings, events.mapped) if events.format == MAPPED else None
