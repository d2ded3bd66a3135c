"""What an audit audited, when, and by which rules: the head of its page."""

import msgspec

from resequencer.clock import Instant


class AuditSubject(msgspec.Struct, frozen=True):
    """`service` is its run directory. `input`, `notifications` and `dead_letters` name topics, or directories and files.

    `archive` is the place of archived topics that were read instead of the topics. `group` is None for files. A stashed envelope
    waits for `shortest_deadline_ms` to `longest_deadline_ms`; they differ only if
    deadlines are learned. `reports` names where the group reports are, None without aggregation.
    """

    service: str
    input: str
    notifications: str
    dead_letters: str
    archive: str | None
    group: str | None
    strategy: str
    shortest_deadline_ms: int
    longest_deadline_ms: int
    began_at: Instant
    took_ms: int
    reports: str | None = None
