"""A cache in memory that fails on demand, for thousands of runs with a failure at any step. It passes the same contract."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from resequencer.storage_port import StorageUnavailable


class Failure(Enum):
    """The failure of a request."""

    NONE = "none"
    BEFORE = "it never arrives"
    AFTER = "it is done, but its answer is lost"


class MemoryServer:
    """The contents of the cache, which survive its clients. `log` names the requests."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.counters: dict[str, int] = {}
        self.log: list[tuple[str, str]] = []


class MemoryCache:
    """A connection to the cache. Each request asks `fails` whether it fails."""

    may_lag = False

    def __init__(self, server: MemoryServer, fails: Callable[[str, str], Failure] = lambda act, key: Failure.NONE) -> None:
        self.server = server
        self.fails = fails
        self._begun = 0

    def get(self, key: str) -> bytes | None:
        return self._answer("get", key, lambda: self.server.values.get(key))

    def put(self, key: str, body: bytes) -> None:
        assert key.count("::") or self.server.values.get(key, body) == body, f"{key} is overwritten"
        self._answer("put", key, lambda: self.server.values.__setitem__(key, bytes(body)))

    def delete(self, key: str) -> None:
        self._answer("delete", key, lambda: self.server.values.pop(key, None))

    def begin(self, requests: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """Make all requests, one after the other: now or when their end is waited for, in order or in reverse."""
        self._begun += 1
        if self._begun % 2:
            requests = requests[::-1]
        if self._begun % 4 < 2:
            return lambda: _fail(_failures_of(requests))
        return partial(_fail, _failures_of(requests))

    def find_counter(self, name: str) -> int | None:
        return self._answer("find_counter", name, lambda: self.server.counters.get(name))

    def create_counter(self, name: str) -> None:
        self._answer("create_counter", name, lambda: self.server.counters.setdefault(name, 0))

    def compare_and_set(self, name: str, expected: int, update: int) -> bool:
        def compare_and_set() -> bool:
            if self.server.counters.get(name) != expected:
                return False
            self.server.counters[name] = update
            return True

        return self._answer("compare_and_set", name, compare_and_set)

    def set_up(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _answer(self, act: str, key: str, do: Callable[[], object]):
        failure = self.fails(act, key)
        self.server.log.append((act, key))
        if failure is Failure.BEFORE:
            raise StorageUnavailable(f"{act} {key}: never arrived")
        answer = do()
        if failure is Failure.AFTER:
            raise StorageUnavailable(f"{act} {key}: the answer was lost")
        return answer


def _failures_of(requests: Sequence[Callable[[], object]]) -> Sequence[StorageUnavailable]:
    failures = []
    for each in requests:
        try:
            each()
        except StorageUnavailable as failure:
            failures.append(failure)
    return failures


def _fail(failures: Sequence[StorageUnavailable]) -> None:
    for each in failures:
        raise each
