"""Puts a time limit on calls in which the Kafka client could wait for ever."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from kafka.errors import KafkaTimeoutError

_Answer = TypeVar("_Answer")


class Bounded:
    """Runs calls one after the other in a daemon thread of its own.

    It cannot be used again after a call that timed out: that call is still running in the thread, and may still take effect.
    """

    def __init__(self) -> None:
        self._questions: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread: Thread | None = None

    def call(self, call: Callable[[], _Answer], timeout_ms: int) -> _Answer:
        """Run the call; return its result, or raise its error.

        Raises:
            KafkaTimeoutError: The call did not end in time.
        """
        if self._thread is None:
            self._thread = Thread(target=self._answer, name="kafka-bounded", daemon=True)
            self._thread.start()
        self._questions.put(call)
        try:
            answer, error = self._answers.get(timeout=timeout_ms / 1000)
        except Exception as empty:
            raise KafkaTimeoutError(f"no answer within {timeout_ms} ms") from empty
        if error is not None:
            raise error
        return answer  # type: ignore[no-any-return]  # What the call returned.

    def close(self) -> None:
        """Let the thread end once its call has returned."""
        self._questions.put(None)

    def _answer(self) -> None:
        while (call := self._questions.get()) is not None:
            try:
                self._answers.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - Any error is raised again in the calling thread.
                self._answers.put((None, error))
