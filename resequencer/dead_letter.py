"""Dead letters: records that could not be handled, with the reason, for an operator."""

from enum import StrEnum

import msgspec

from resequencer.clock import Instant
from resequencer.record import Record

_HEADERS_BYTES = 1_024


class DeadLetterReason(StrEnum):
    """The reasons of dead letters (docs/contract.md, section 9)."""

    UNDECODABLE = "undecodable"
    NO_UNIT_OF_WORK = "no-unit-of-work"
    INVALID_ID = "invalid-id"
    NO_SEQUENCE = "no-sequence"
    INVALID_SEQUENCE = "invalid-sequence"
    INVALID_TIME = "invalid-time"
    UNSUPPORTED_SCHEMA_VERSION = "unsupported-schema-version"
    TOO_LARGE = "too-large"
    CONFLICTING_DUPLICATE = "conflicting-duplicate"
    TOO_MANY_OBJECTS = "too-many-objects"
    HANDLER_FAILED = "handler-failed"
    ENDED_ITS_WORKER = "ended-its-worker"
    ORDERED = "ordered"
    REJECTED = "rejected"
    UNEXPECTED_ANSWER = "unexpected-answer"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    SKIPPED = "skipped"
    UNDELIVERABLE = "undeliverable"


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A record that could not be handled. It is published with its original key, value and headers, and more headers."""

    record: Record
    reason: DeadLetterReason
    error: str
    dead_at: Instant

    @property
    def size(self) -> int:
        """About its size in bytes until it is published."""
        return self.record.size + _HEADERS_BYTES
