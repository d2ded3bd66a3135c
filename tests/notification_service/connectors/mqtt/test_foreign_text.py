"""Texts of properties, which the client by itself refuses at a single character."""

import pytest
from paho.mqtt import properties
from paho.mqtt.exception import MalformedPacket

from notification_service.connectors.mqtt.foreign_text import read_text


def test_the_client_uses_it() -> None:
    assert properties.readUTF is read_text


@pytest.mark.parametrize(
    ("raw", "text"), [(b"", ""), ("ä".encode(), "ä"), (b"\xef\xbb\xbf", "\ufeff"), (b"\x00", "\x00"), (b"\xff", "\ufffd")]
)
def test_every_text_is_read(raw: bytes, text: str) -> None:
    assert read_text(len(raw).to_bytes(2, "big") + raw + b"more", len(raw) + 6) == (text, len(raw) + 2)


@pytest.mark.parametrize(("buffer", "most"), [(b"\x00", 1), (b"", 0), (b"\x00\x03ab", 4), (b"\x00\x03abc", 4)])
def test_a_text_that_is_longer_than_its_packet_is_none(buffer: bytes, most: int) -> None:
    with pytest.raises(MalformedPacket):
        read_text(buffer, most)
