"""Feeds a service at a rate while it is struck: one simulation after the other, each with a seed of its own."""

import json
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.stage import Stage

_OUT_OF_REACH = 4
_SECONDS = 900


class Feeder:
    """`stop` lets the current simulation finish, because only then is the expected output known."""

    def __init__(self, stage: "Stage", *arguments: str) -> None:
        self.lines = 0
        self._stage = stage
        self._arguments = arguments
        self._seeds = count(stage.chance.randrange(10**6))
        self._failure: str | None = None
        self._is_stopping = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def check(self) -> None:
        """Fail if the feeder could not continue."""
        assert self._failure is None, self._failure

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        seed = next(self._seeds)
        while not self._is_stopping.is_set() and self._failure is None:
            if self._simulate(seed):
                seed = next(self._seeds)

    def _simulate(self, seed: int) -> bool:
        """Return whether the simulation was written. It was not if the broker was away from the beginning."""
        before = self._expected_bytes()
        done = self._stage.verb("simulate", "--json", "--seed", str(seed), *self._arguments, seconds=_SECONDS)
        if done.returncode == 0:
            self.lines += json.loads(done.stdout)["lines"]
            return True
        if done.returncode != _OUT_OF_REACH or self._expected_bytes() != before:
            self._failure = f"simulate ended with {done.returncode}: {done.stderr}"
        return False

    def _expected_bytes(self) -> int:
        file = self._stage.service.run_directory / "expected.jsonl"
        return file.stat().st_size if file.exists() else 0
