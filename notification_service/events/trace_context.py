"""The trace context of a record (W3C Trace Context, https://www.w3.org/TR/trace-context/), as its notifications repeat it."""

import re

from guardian.headers import TRACEPARENT, TRACESTATE
from resequencer.record import Headers

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_FIRST_VERSION = b"00-"
_LONGEST_PARENT = 512
_LONGEST_STATE = 512
_MAX_MEMBERS = 32
_KEY = rb"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_VALUE = rb"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(_KEY + b"=" + _VALUE)


def trace_headers(headers: Headers) -> Headers:
    """Return the headers `traceparent` and `tracestate` of a record as they came, each only if it is valid.

    Without a valid `traceparent` there is no `tracestate` either. Of several headers of one name the last one counts. Both have
    at most 512 bytes; a `traceparent` of version 00 has 55, and one of a later version may have more behind these.
    """
    parent = state = None
    for name, value in headers:
        if name == TRACEPARENT:
            parent = value
        elif name == TRACESTATE:
            state = value
    if parent is None or not _is_parent(parent):
        return ()
    if state is None or not _is_state(state):
        return ((TRACEPARENT, parent),)
    return (TRACEPARENT, parent), (TRACESTATE, state)


def _is_parent(value: bytes) -> bool:
    found = _PARENT.fullmatch(value) if len(value) <= _LONGEST_PARENT else None
    return found is not None and not (value.startswith(_FIRST_VERSION) and found[1])


def _is_state(value: bytes) -> bool:
    """Whether it is a list of members with different keys. Members may be empty, and have blanks around them."""
    if len(value) > _LONGEST_STATE:
        return False
    members = [each for part in value.split(b",") if (each := part.strip(b" \t"))]
    keys = {each.partition(b"=")[0] for each in members}
    return 0 < len(members) == len(keys) <= _MAX_MEMBERS and all(_MEMBER.fullmatch(each) for each in members)
