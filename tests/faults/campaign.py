"""A campaign: a service is fed and struck by faults, then drained, and `resequencer verify` checks its output."""

import json
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any

from harness.fault_table import Row
from harness.waiting import pause_at_random, wait_until

from tests.faults.feeder import Feeder
from tests.faults.stage import LONGEST_WAIT_SECONDS, Stage
from tests.faults.storages import STORAGES
from tests.faults.strikes import Strike

_IDLE_SECONDS = 2 * LONGEST_WAIT_SECONDS
"""With storage `none`, units that are rebuilt after a fault may wait for their deadlines without any output."""

DEVIATIONS = ("lost", "doubled", "out of order")
QUIET = ("--losses", "0", "--late", "0", "--garbage", "0.5%", "--conflicts", "0.2%")


class Campaign:
    """Strikes at random moments: in the middle of the work, or of the recovery from the strike before."""

    def __init__(self, stage: Stage, fault: str, seed: int, *arguments: str) -> None:
        self.stage = stage
        self.fault = fault
        self.judged_as: tuple[str, ...] = ()
        """More arguments of `verify`."""
        self._seed = seed
        self._times = 0
        self._recovery_seconds = 0.0
        self._began_at = monotonic()
        self._feeder = Feeder(stage, *QUIET, *arguments)

    def begin(self) -> None:
        """Wait until the service has read its first records."""
        self.wait_for(lambda: self._feeder.has_failed or any(self.stage.read_to().values()), "it is fed")
        self._feeder.check()

    def strike(self, strike: Strike, chance: Random) -> None:
        """Strike. After the first strike, and after about every second one, wait until the service has recovered."""
        pause_at_random(chance, 0.2, 3)
        self._feeder.check()
        began_at = self._tell(strike.__name__)
        strike(self.stage, chance)
        self._times += 1
        if self._times == 1 or chance.random() < 0.5:
            over_at, ends = monotonic(), self.stage.ends()
            self.wait_for(lambda: self.stage.has_read(ends), "it has recovered")
            self._recovery_seconds = max(self._recovery_seconds, monotonic() - over_at)
        self._tell(f"{strike.__name__} took {monotonic() - began_at:.1f} s")

    def wait_for(self, question: Callable[[], object], what: str, seconds: float = LONGEST_WAIT_SECONDS) -> None:
        """Wait until the answer is true; a failure shows the end of the service's log."""
        try:
            wait_until(question, what, seconds, 0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._last_words()}") from error

    def finish(self) -> Row:
        """Feed to the end, drain, verify. Record the returned row before `judge`, which may fail."""
        self._feeder.stop()
        self._feeder.check()
        ends = self.stage.ends()
        self.wait_for(lambda: self.stage.is_idle(ends), "everything is read and has left", _IDLE_SECONDS)
        stopped = self.stage.service.verb("stop", seconds=LONGEST_WAIT_SECONDS)
        assert stopped.returncode == 0, stopped.stderr + self._last_words()
        self.verdict = self._verify()
        counts = self.verdict["counts"]
        return Row(
            self.fault,
            self._times,
            self.stage.storage_name,
            self._feeder.lines,
            self.verdict["notifications"],
            *(counts[each] for each in DEVIATIONS),
            sum(number for name, number in counts.items() if name not in DEVIATIONS),
            self.stage.possible_duplicates(),
            self._recovery_seconds,
            self._seed,
        )

    def judge(self, row: Row) -> None:
        """Check that nothing is wrong, and that notifications are marked as repeated only if the storage can lose data."""
        assert self.verdict["good"], (self.verdict["counts"], self.verdict["examples"])
        assert STORAGES[row.storage].forgets or row.possible_duplicates == 0

    def give_up(self) -> None:
        self._feeder.stop()

    def _verify(self) -> Any:
        """Run `resequencer verify`, again if the broker does not answer, as on a busy machine."""
        answer = wait_until(
            lambda: self.stage.verb("verify", "--json", *self.judged_as, seconds=600).stdout,
            "it is verified",
            LONGEST_WAIT_SECONDS,
            1,
        )
        return json.loads(answer)

    def _last_words(self) -> str:
        log = self.stage.daemon.log_file
        log_text = log.read_text(errors="replace")[-6_000:] if log.exists() else ""
        return f"{self.stage.report}\n{log_text}"

    def _tell(self, what: str) -> float:
        now = monotonic()
        print(f"{now - self._began_at:7.1f} s  {what}", flush=True)
        return now
