"""The name of a format as stored states carry it: another name for what would find other events in the same records."""

from urllib.parse import parse_qsl

import pytest
from msgspec.structs import replace

from notification_service.events.mapped import Mapping
from notification_service.events.settings import EventsSettings, stored_format, stored_mapping

MAPPED = EventsSettings("mapped", Mapping(sequence="header:version"))


def test_the_first_formats_have_their_names_whatever_is_mapped() -> None:
    assert [stored_format(EventsSettings(each, Mapping("header:x")), object()) for each in ("ipf", "cloudevents")] == [
        "ipf",
        "cloudevents",
    ]


def test_a_mapping_has_the_same_name_at_each_start_and_whatever_it_replaces() -> None:
    assert (
        stored_format(MAPPED, object()) == stored_format(replace(MAPPED, replaces="ipf"), object()) == "mapped-71d30ea5d016544e"
    )


@pytest.mark.parametrize("field", ["unit", "sequence", "flow", "id", "type", "time", "previous"])
def test_another_place_of_any_field_is_another_format(field: str) -> None:
    other = replace(MAPPED, mapped=replace(MAPPED.mapped, **{field: "value:elsewhere"}))
    assert stored_format(other, object()) != stored_format(MAPPED, object())


def test_the_places_are_stored_beside_it_without_white_space() -> None:
    mapping = stored_mapping(replace(MAPPED, mapped=replace(MAPPED.mapped, time="header:\ta ü&=+", id="position")))
    assert parse_qsl(mapping) == [
        ("unit", "key"),
        ("sequence", "header:version"),
        ("id", "position"),
        ("time", "header:\ta ü&=+"),
    ]
    assert len(mapping.split()) == 1
    assert stored_mapping(EventsSettings("ipf", MAPPED.mapped)) == ""


def test_a_decoder_of_another_version_is_another_format() -> None:
    class Decoder:
        version = "2 beta"

    assert stored_format(EventsSettings("package.module:Class", Mapping()), Decoder()) == "package.module:Class-2-beta"
