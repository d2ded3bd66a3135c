"""Calls that the Kafka client would wait in for ever, with a limit."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from kafka.errors import KafkaTimeoutError

_Answer = TypeVar("_Answer")


class Bounded:
    """Runs calls one after the other in a thread of its own, which does not keep the process from ending.

    Of no use any more after a call that was not answered in time: that call is still in its thread, and may yet have its
    effect.
    """

    def __init__(self) -> None:
        self._questions: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread: Thread | None = None

    def call(self, call: Callable[[], _Answer], timeout_ms: int) -> _Answer:
        """What it returns or raises.

        Raises:
            KafkaTimeoutError: It did neither within the time.
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
        """Lets the thread go once its call has come back."""
        self._questions.put(None)

    def _answer(self) -> None:
        while (call := self._questions.get()) is not None:
            try:
                self._answers.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - Whatever it is, it is raised where the call was made.
                self._answers.put((None, error))
