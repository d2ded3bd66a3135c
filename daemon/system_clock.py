"""The system's clock, the only module that reads it."""

from time import time_ns

from domain.clock import Instant


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> Instant:
        return time_ns() // 1_000_000
