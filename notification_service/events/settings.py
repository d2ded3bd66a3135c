"""The section `events`: the format of the records that come, and the decoder for it."""

from typing import Annotated

import msgspec

from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import MappedDecoder, Mapping
from notification_service.events.own_format import ForeignFormat
from resequencer.event import Decoder
from resequencer.in_flight import InFlight
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice
from resequencer.users_code import make_adapted

IPF, CLOUDEVENTS, MAPPED = "ipf", "cloudevents", "mapped"
FORMAT_KEY = "ipf.processing-data.ingress.events.format"


class EventsSettings(msgspec.Struct, frozen=True):
    """`format` is ipf, cloudevents, mapped or `package.module:Class`; `mapped` is used by that alone."""

    format: Annotated[str, Key(Choice((IPF, CLOUDEVENTS, MAPPED), "Class"))]
    mapped: Annotated[Mapping, Section("mapped")]


def find_decoder(events: EventsSettings, settings: DecodingSettings, in_flight: InFlight | None = None) -> Decoder | None:
    """Return the decoder of the format; None for IPF's, which is read where payments are known.

    During calls of a user's own format, the record is in `in_flight`.

    Raises:
        ConfigurationError: The user's class cannot be imported, created or used.
    """
    name = events.format
    if name == IPF:
        return None
    if name == CLOUDEVENTS:
        return CloudEventDecoder(settings)
    if name == MAPPED:
        return MappedDecoder(settings, events.mapped)
    return make_adapted(
        name,
        FORMAT_KEY,
        "Add a format",
        "a class with the method decode",
        lambda users_class: ForeignFormat(users_class(settings), name, settings, in_flight),
    )
