"""Lets the client read the properties of every message.

By itself it closes the connection at a user property with U+FEFF, which MQTT 5 allows and brokers deliver, or with a null. At
one that is not UTF-8 its thread dies. The message would come again with each connection, and nothing behind it would ever come.
"""

from paho.mqtt import properties
from paho.mqtt.exception import MalformedPacket

_LENGTH_BYTES = 2


def read_text(buffer: bytes, available: int) -> tuple[str, int]:
    """Return the text at the beginning of the buffer, and the bytes that it takes there; what is not UTF-8 is replaced.

    Raises:
        MalformedPacket: The text is longer than the `available` bytes.
    """
    length = int.from_bytes(buffer[:_LENGTH_BYTES], "big")
    if available < _LENGTH_BYTES or length > available - _LENGTH_BYTES:
        raise MalformedPacket("a text is longer than its packet")
    end = _LENGTH_BYTES + length
    return bytes(buffer[_LENGTH_BYTES:end]).decode("utf-8", "replace"), end


# The client offers no other way to replace it.
properties.readUTF = read_text
