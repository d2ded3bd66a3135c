"""When a waiting envelope should have been released."""

import pytest

from notification_service.jobs.audit.job import Made, Timing, overdue
from notification_service.jobs.audit.row_audit import WAITING, ResultRow
from notification_service.jobs.audit.rules import AuditSettings
from notification_service.payments.settings import HandlerSettings
from notification_service.payments.strategies import StrategySettings
from resequencer.settings import LEARNED, LearnedTimeout, ResequencerSettings

LENGTHS = {0: 10}
WAITS = ResultRow(WAITING, "uow-1", 0, 3, what="sequence:2")


def settings(**resequencer: object) -> AuditSettings:
    its = ResequencerSettings(**resequencer)
    return AuditSettings(StrategySettings("SEQUENCE"), HandlerSettings(), its, "", "", "T", 1_000, LENGTHS, grace_ms=1_000)


def found(waited_ms: int, of: AuditSettings) -> list[str | None]:
    """Return the deviations, if the partition was processed for so long after the waiting envelope had been read."""
    timing = Timing([Made(0, 4, 0, waited_ms)], LENGTHS)
    return [each.deviation for each in overdue([WAITS], timing, of)]


@pytest.mark.parametrize(
    ("resequencer", "bound_ms"),
    [
        ({}, 22_000),
        ({"stash_timeout_ms": 5_000}, 6_000),
        ({"stash_timeout_ms": LEARNED, "learned_timeout": LearnedTimeout(1_000, 60_000)}, 61_000),
    ],
)
def test_what_waits_is_overdue_a_grace_after_the_longest_deadline_that_it_may_have_had(resequencer, bound_ms):
    """The lookup releases of the time when an envelope was stashed are unknown later, because releases are removed."""
    assert found(bound_ms, settings(**resequencer)) == []
    assert found(bound_ms + 1, settings(**resequencer)) == ["overdue"]
