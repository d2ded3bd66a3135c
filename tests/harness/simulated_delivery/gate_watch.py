"""What docs/delivery.md promises of a gate, said once more in plain steps: when it shuts, and when it may be probed."""

from collections import Counter

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.jobs import RetryMode
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.settings import Receiver, Step

_TROUBLED = 5
_OWN = 3


class GateWatch:
    """`streaks` are by step the rows that the receiver troubled one after the other, with their attempts before.

    No probe may begin before `probe_from`.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.is_shut = False
        self.probe: int | None = None
        self.probe_from = 0
        self.probe_until = 0
        self.streaks: dict[Step, dict[int, int]] = {}
        self._shut_by = ""
        self.given_back: dict[int, int] = {}
        """The rows for which the last results shut it: they get their attempts back."""
        self._failed_probes = 0
        self._served: Counter[Step] = Counter()
        self._refused: dict[str, tuple[Step, int, int]] = {}
        """By unit: the step of its last suspension, how often the step was served before, and how often in between."""

    def meaning(self, result: ClaimResult) -> Outcome:
        """Return what an outcome means: it is the unit's own failure if the unit alone was refused often enough."""
        outcome, (unit, step) = result.outcome, (result.claim.key, result.claim.step)
        if isinstance(outcome, Done | Rejected):
            self._refused.pop(unit, None)
        if not isinstance(outcome, Suspended) or outcome.alone is None:
            return outcome
        known, served, between = self._refused.get(unit, (step, self._served[step], 0))
        between = between + (served < self._served[step]) if known is step else 0
        self._refused[unit] = (step, self._served[step], between)
        return outcome.alone if between >= _OWN else outcome

    def forgot(self, units: set[str]) -> None:
        """Note that the ledger knows nothing of these units any more."""
        for each in units:
            self._refused.pop(each, None)

    def opened(self) -> None:
        self.is_shut, self.probe, self.streaks = False, None, {}

    def probed(self, row: int, until: int) -> None:
        self.probe, self.probe_until = row, until

    def heard(self, result: ClaimResult, attempts: int, now: int) -> None:
        """Note the outcome of a call for a row that had so many attempts before, if it tells of the receiver."""
        outcome = result.outcome
        if self.is_shut:
            if result.claim.row != self.probe:
                return
            is_unlike = isinstance(outcome, Failed) and outcome.error[:8] != self._shut_by[:8]
            if not _is_awake(outcome) and not (is_unlike and outcome.mode is None):  # type: ignore[union-attr]
                self._failed_probes += 1
                self._rest(now, outcome)
                return
            self.opened()
            attempts = 0
        step = result.claim.step
        self._served[step] += isinstance(outcome, Done | Rejected)
        if isinstance(outcome, Suspended):
            self._shut(now, outcome)
        elif isinstance(outcome, Done | Rejected | Limited):
            self.streaks.pop(step, None)
        elif _is_trouble(outcome):
            before = [streak.pop(result.claim.row) for streak in self.streaks.values() if result.claim.row in streak]
            self.streaks.setdefault(step, {})[result.claim.row] = min([attempts, *before])
            if len(self.streaks[step]) == _TROUBLED:
                self.given_back = self.streaks[step]
                self._shut(now, outcome)

    def _shut(self, now: int, outcome: Outcome) -> None:
        self.is_shut, self.streaks, self._failed_probes = True, {}, 0
        self._rest(now, outcome)

    def _rest(self, now: int, outcome: Outcome) -> None:
        self._shut_by = getattr(outcome, "error", "")
        settings = self._receiver.suspension
        self.probe, self.probe_from = None, now + min(settings.probe_ms * 2**self._failed_probes, settings.max_ms)


def _is_awake(outcome: Outcome) -> bool:
    if isinstance(outcome, Again):
        return outcome.announces or outcome.mode is RetryMode.VERIFICATION
    return isinstance(outcome, Done | Rejected | Limited) or (
        isinstance(outcome, Failed) and (outcome.is_unknown or outcome.mode is RetryMode.VERIFICATION)
    )


def _is_trouble(outcome: Outcome) -> bool:
    if isinstance(outcome, Again):
        return outcome.mode is RetryMode.BACK_OFF and not outcome.announces
    return isinstance(outcome, Failed) and outcome.mode is not RetryMode.VERIFICATION
