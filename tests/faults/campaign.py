"""A campaign: a service is fed and struck, then drained, and what left is verified by the project's own means."""

import json
from collections.abc import Callable
from random import Random
from time import monotonic, sleep
from typing import Any

from harness.fault_table import Row
from harness.waiting import wait_until

from tests.faults.feeder import Feeder
from tests.faults.stage import LONGEST_WAIT_SECONDS, Stage
from tests.faults.storages import STORAGES
from tests.faults.strikes import Strike

_IDLE_SECONDS = 2 * LONGEST_WAIT_SECONDS
"""With storage none what is rebuilt after a fault may wait for its deadline, in silence."""

DEVIATIONS = ("lost", "doubled", "out of order")
QUIET = ("--losses", "0", "--late", "0", "--garbage", "0.5%", "--conflicts", "0.2%")


class Campaign:
    """Strikes at moments that chance picks: in the middle of the work, or of the recovery from the strike before."""

    def __init__(self, stage: Stage, fault: str, seed: int, *arguments: str) -> None:
        self.stage = stage
        self.fault = fault
        self._seed = seed
        self._times = 0
        self._recovery_seconds = 0.0
        self._began_at = monotonic()
        self._feeder = Feeder(stage, *QUIET, *arguments)

    def begin(self) -> None:
        """Until the service has something to do."""
        self.wait_for(lambda: self._feeder.has_failed or any(self.stage.read_to().values()), "it is fed")
        self._feeder.check()

    def strike(self, strike: Strike, chance: Random) -> None:
        """And, the first time and about every other one, see to it that the service recovers."""
        sleep(chance.uniform(0.2, 3))
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
        """Fails with the end of the service's log."""
        try:
            wait_until(question, what, seconds, 0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._last_words()}") from error

    def finish(self) -> Row:
        """Feed to the end, drain, verify. What it returns is to be noted before it is judged."""
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
        """Nothing may be wrong, and what repeats only where the storage really lost something."""
        assert self.verdict["good"], (self.verdict["counts"], self.verdict["examples"])
        assert STORAGES[row.storage].forgets or row.possible_duplicates == 0

    def give_up(self) -> None:
        self._feeder.stop()

    def _verify(self) -> Any:
        """Asked again if the broker does not answer: a busy machine may keep it waiting."""
        said = wait_until(
            lambda: self.stage.verb("verify", "--json", seconds=600).stdout, "it is verified", LONGEST_WAIT_SECONDS, 1
        )
        return json.loads(said)

    def _last_words(self) -> str:
        log = self.stage.daemon.log_file
        said = log.read_text(errors="replace")[-6_000:] if log.exists() else ""
        return f"{self.stage.report}\n{said}"

    def _tell(self, what: str) -> float:
        now = monotonic()
        print(f"{now - self._began_at:7.1f} s  {what}", flush=True)
        return now
