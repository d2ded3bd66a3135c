"""What docs/delivery.md promises of a gate, said once more in plain steps: when it shuts, and when it may be probed."""

from delivery.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from delivery.ledger.finishing import ClaimResult
from delivery.rows import RetryMode
from delivery.settings import Receiver

_TROUBLED = 5


class GateWatch:
    """`streak` are the rows that the receiver troubled one after the other, with their attempts before.

    No probe may begin before `probe_from`.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.is_shut = False
        self.probe: int | None = None
        self.probe_from = 0
        self.probe_until = 0
        self.streak: dict[int, int] = {}
        self.given_back: dict[int, int] = {}
        """The rows for which the last results shut it: they get their attempts back."""
        self._failed_probes = 0

    def opened(self) -> None:
        self.is_shut, self.probe, self.streak = False, None, {}

    def probed(self, row: int, until: int) -> None:
        self.probe, self.probe_until = row, until

    def heard(self, result: ClaimResult, attempts: int, now: int) -> None:
        """Note the outcome of a call for a row that had so many attempts before."""
        outcome = result.outcome
        if self.is_shut:
            if result.claim.row != self.probe:
                return
            if not _is_awake(outcome):
                self._failed_probes += 1
                self._rest(now)
                return
            self.opened()
        if isinstance(outcome, Suspended):
            self._shut(now)
        elif isinstance(outcome, Done | Rejected | Limited):
            self.streak = {}
        elif _is_trouble(outcome):
            self.streak.setdefault(result.claim.row, attempts)
            if len(self.streak) == _TROUBLED:
                self.given_back = self.streak
                self._shut(now)

    def _shut(self, now: int) -> None:
        self.is_shut, self.streak, self._failed_probes = True, {}, 0
        self._rest(now)

    def _rest(self, now: int) -> None:
        settings = self._receiver.suspension
        self.probe, self.probe_from = None, now + min(settings.probe_ms * 2**self._failed_probes, settings.most_ms)


def _is_awake(outcome: Outcome) -> bool:
    if isinstance(outcome, Again):
        return outcome.announces or outcome.mode is RetryMode.VERIFICATION
    return isinstance(outcome, Done | Rejected | Limited) or (
        isinstance(outcome, Failed) and outcome.mode is RetryMode.VERIFICATION
    )


def _is_trouble(outcome: Outcome) -> bool:
    if isinstance(outcome, Again):
        return outcome.mode is RetryMode.BACK_OFF and not outcome.announces
    return isinstance(outcome, Failed) and outcome.mode is not RetryMode.VERIFICATION
