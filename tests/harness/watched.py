"""A server of a worker that records its calls, and fails on a test's demand."""

from __future__ import annotations

from typing import Any

from guardian.ports import PartitionOutput
from resequencer.storage_port import Commit, StorageUnavailable


class Watched:
    """Records the calls to a server in order. `before` and `after` run around calls by name."""

    def __init__(self, inner: Any, watcher: Watcher) -> None:
        self._inner = inner
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self._watcher.calls.append((name, arguments))
            self._watcher.run(self._watcher.before, name)
            header = getattr(self._inner, "header", None)
            answer = found(*arguments)
            try:
                self._watcher.run(self._watcher.after, name)
            except StorageUnavailable:
                if header is not None:
                    self._inner._header = header  # A caller without an answer knows no new header.
                raise
            return Watched(answer, self._watcher) if name == "open" else answer

        return call


class Watcher:
    """Holds the recorded calls, and the errors to raise by the name of the call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.before: dict[str, list[Exception | None]] = {}
        self.after: dict[str, list[Exception | None]] = {}

    def run(self, planned: dict[str, list[Exception | None]], name: str) -> None:
        if planned.get(name) and (error := planned[name].pop(0)):
            raise error

    def names(self, *wanted: str) -> list[str]:
        return [name for name, _ in self.calls if name in wanted]

    def commits(self) -> list[Commit]:
        return [arguments[0] for name, arguments in self.calls if name == "commit"]

    def outputs(self) -> list[list[PartitionOutput]]:
        return [arguments[0] for name, arguments in self.calls if name == "publish"]
