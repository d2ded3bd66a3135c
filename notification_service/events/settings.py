"""The section `events`: the format of the records that come, and the decoder for it."""

from hashlib import blake2b
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import KEY, MappedDecoder, Mapping
from notification_service.events.own_format import ForeignFormat
from resequencer.event import Decoder
from resequencer.in_flight import InFlight
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice, Text
from resequencer.strategies.port import Strategy
from resequencer.users_code import make_adapted

IPF, CLOUDEVENTS, MAPPED = "ipf", "cloudevents", "mapped"
FORMAT_KEY = "ipf.processing-data.ingress.events.format"


class EventsSettings(msgspec.Struct, frozen=True):
    """`format` is ipf, cloudevents, mapped or `package.module:Class`; `mapped` is used by that alone.

    `replaces` names the format that this one replaces.
    """

    format: Annotated[str, Key(Choice((IPF, CLOUDEVENTS, MAPPED), "Class"))]
    mapped: Annotated[Mapping, Section("mapped")]
    replaces: Annotated[str | None, Key(Text(r"\S+", "the name of a format as the refusal gives it", "none"))] = None


def decoding_settings(strategy: Strategy, first_sequence: int | None, max_value_bytes: int) -> DecodingSettings:
    """Return what records must have for this strategy. `first_sequence` None: numbers may begin with any.

    So they may where the end of a wait releases in order, as with WINDOW: no number is the first there.
    """
    needs_time = bool(getattr(strategy, "needs_time", False))
    begins_with_one = first_sequence == 1 and not getattr(strategy, "releases_by_wait", False)
    return DecodingSettings(strategy.needs_sequence, max_value_bytes, int(begins_with_one), needs_time)


def stored_format(events: EventsSettings, decoder: Any) -> str:
    """Return the name of the format as stored states carry it: what would find other events in the same records has another name.

    A mapping is a part of it, as a digest; so is the `version` of a decoder that has one.
    """
    name = events.format
    if name == MAPPED:
        name = f"{name}-{blake2b(msgspec.json.encode(_places(events), order='sorted'), digest_size=8).hexdigest()}"
    version = getattr(decoder, "version", None)
    return name if version is None else f"{name}-{'-'.join(str(version).split())}"


def stored_mapping(events: EventsSettings) -> str:
    """Return what is mapped, as it is stored beside the name of the format, for errors; empty for other formats."""
    return urlencode(_places(events)) if events.format == MAPPED else ""


def _places(events: EventsSettings) -> dict[str, str]:
    return {field: place for field, place in msgspec.structs.asdict(events.mapped).items() if place is not None}


def is_keyed_otherwise(events: EventsSettings) -> bool:
    """Whether records of a unit may have different keys. Those of payments are compared with the unit itself."""
    return events.format != IPF and (events.format != MAPPED or events.mapped.unit != KEY)


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
