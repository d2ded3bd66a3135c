"""Dead letters: records set aside with their reason, for a person to look at."""

from enum import StrEnum

import msgspec

from domain.clock import Instant
from domain.record import Record

_HEADERS_BYTES = 1_024


class DeadLetterReason(StrEnum):
    """All the reasons there are (docs/contract.md, section 9)."""

    UNDECODABLE = "undecodable"
    NO_UNIT_OF_WORK = "no-unit-of-work"
    INVALID_ID = "invalid-id"
    NO_SEQUENCE = "no-sequence"
    INVALID_SEQUENCE = "invalid-sequence"
    UNSUPPORTED_SCHEMA_VERSION = "unsupported-schema-version"
    TOO_LARGE = "too-large"
    CONFLICTING_DUPLICATE = "conflicting-duplicate"
    TOO_MANY_OBJECTS = "too-many-objects"
    HANDLER_FAILED = "handler-failed"
    ENDED_ITS_WORKER = "ended-its-worker"


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A record that could not be handled. It leaves with its key, value and headers as they came, and four headers more."""

    record: Record
    reason: DeadLetterReason
    error: str
    dead_at: Instant

    @property
    def size(self) -> int:
        """About the bytes that it takes until it has left."""
        return self.record.size + _HEADERS_BYTES
