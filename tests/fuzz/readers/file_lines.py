"""Target `file-lines`: any line is a record or a defect, as an independent reader says, and written lines are read again."""

import json

from fuzz.independent.json import NotJson, TooDeep, read_json
from fuzz.independent.line import NotARecord, read_line
from fuzz.simulated import simulated_lines

from notification_service.connectors.line_format import Defect, Line, decode_line, encode_line

TOKENS = (
    b'"key":',
    b'"key-base64":',
    b'"headers":',
    b'"value":',
    b'"value-base64":',
    b'"name":',
    b'"number":',
    b'"/w=="',
    b"YR==",
)


def check(data: bytes) -> None:
    """Check the bytes as a line, and as the key, header and value of a record.

    * Nothing is raised; it is a record exactly if the independent reading finds one, and then the same one.
    * A defect says why on one line.
    * A record that is written comes back as it was, embedded or verbatim, as one line that every JSON reader understands.
    """
    ours = decode_line(data)
    if isinstance(ours, Defect):
        assert ours.problem.isprintable(), ours
        assert 0 < len(ours.problem) < 300, ours
    try:
        assert (ours if isinstance(ours, Line) else None) == read_line(data)
    except TooDeep:
        pass
    except (NotJson, NotARecord):
        assert isinstance(ours, Defect)
    if isinstance(ours, Line):
        _check_round_trip(ours)
    _check_round_trip(_anything(data))
    _check_round_trip(Line(None, data[:8] or None))


def _check_round_trip(line: Line) -> None:
    for verbatim in (False, True):
        written = encode_line(line, number="T-0#1", verbatim=verbatim)
        assert written.endswith(b"\n")
        assert written.count(b"\n") == 1
        assert decode_line(written[:-1]) == line, written
        assert isinstance(read_json(written) if not verbatim else json.loads(written), dict)
        assert len(written) <= 2 * (len(line.content) + len(line.key or b"") + _length(line)) + 200


def _length(line: Line) -> int:
    return sum(len(name.encode()) * 3 + len(value) + 40 for name, value in line.headers)


def _anything(data: bytes) -> Line:
    """Return a record each of whose parts may be anything, as a producer on Kafka could send it."""
    first, second, third = (len(data) * share // 8 for share in (1, 2, 3))
    name = data[first:second].decode("utf-8", "replace")
    headers = (("schema-version", data[second:third]), (name, data[:first]), (name, b"2"))
    return Line(data[third:], data[:first] or None, headers[: len(data) % 4])


def seeds() -> list[bytes]:
    """Yield a simulation's lines, and one for each way to write a key, a header and a value."""
    ways = [
        b'{"key-base64":"/w==","headers":[{"name":"a","value":"1"},{"name":"a","value-base64":"/w=="}],"value-base64":"/wA="}',
        b'{"key":"uow-1","headers":{"schema-version":"2","x":"y"},"value":"<a>\\u00fc\\n</a>"}',
        b'{"key":null,"headers":null,"value":[1, 2.50, {"a" : null}], "more": {}}',
        b'{"key":"uow-1","headers":{"x":"y"},"value-base64":null}',
    ]
    return [*ways, *simulated_lines()]
