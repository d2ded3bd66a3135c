"""Asks a broker for metadata over a plain socket; a client would start threads and log every failed try."""

import socket
import struct
from contextlib import closing

from servers.ports import LOOPBACK

_METADATA, _VERSION, _CORRELATION, _NO_CLIENT = 3, 4, 1, -1
_NO_TOPICS, _CREATE_NONE = 0, 0
_REQUEST = struct.pack(">hhihi?", _METADATA, _VERSION, _CORRELATION, _NO_CLIENT, _NO_TOPICS, _CREATE_NONE)
_ANSWER = struct.Struct(">iiii")  # Size, correlation, throttle time, number of brokers; the brokers follow.
_SECONDS = 2


def knows_a_broker(port: int) -> bool:
    """Return whether the server answers with a broker; one that its controller has not yet admitted reports none."""
    try:
        with closing(socket.create_connection((LOOPBACK, port), _SECONDS)) as connection:
            connection.settimeout(_SECONDS)
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == _ANSWER.size and _ANSWER.unpack(answer)[3] > 0
