"""The section `events`: the format of the records that come, and the decoder for it."""

from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import KEY, MappedDecoder, Mapping
from resequencer.event import Decoder
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice, Text

IPF, CLOUDEVENTS, MAPPED = "ipf", "cloudevents", "mapped"


class EventsSettings(msgspec.Struct, frozen=True):
    """`format` is ipf, cloudevents or mapped; `mapped` is used by the last. `replaces` names the one that this one replaces."""

    format: Annotated[str, Key(Choice((IPF, CLOUDEVENTS, MAPPED)))]
    mapped: Annotated[Mapping, Section("mapped")]
    replaces: Annotated[str | None, Key(Text(r"\S+", "the name of a format as the refusal gives it", "none"))] = None


def stored_format(events: EventsSettings, decoder: Any) -> str:
    """Return the name of the format as stored states carry it: what would find other events in the same records has another name.

    A mapping is a part of it, as a digest; so is the `version` of a decoder that has one.
    """
    name = events.format
    if name == MAPPED:
        places = {field: place for field, place in msgspec.structs.asdict(events.mapped).items() if place is not None}
        name = f"{name}-{blake2b(msgspec.json.encode(places, order='sorted'), digest_size=8).hexdigest()}"
    version = getattr(decoder, "version", None)
    return name if version is None else f"{name}-{'-'.join(str(version).split())}"


def is_keyed_otherwise(events: EventsSettings) -> bool:
    """Whether records of a unit may have different keys. Those of payments are compared with the unit itself."""
    return events.format != IPF and (events.format != MAPPED or events.mapped.unit != KEY)


def find_decoder(events: EventsSettings, settings: DecodingSettings) -> Decoder | None:
    """Return the decoder of the format; None for IPF's, which is read where payments are known."""
    if events.format == CLOUDEVENTS:
        return CloudEventDecoder(settings)
    return MappedDecoder(settings, events.mapped) if events.format == MAPPED else None
