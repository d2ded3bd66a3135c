"""A ledger on SQLite whose transactions break: its caller dies in the midst, or its answer is lost."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import event

from notification_service.delivery.errors import LedgerUnavailable
from notification_service.delivery.ledger.database import Database
from resequencer.clock import SteadyClock

_NAME = "ledger.db"


class Struck(LedgerUnavailable):
    """The ledger does not answer, because the simulation wants it so."""

    def __init__(self, reason: str) -> None:
        super().__init__("", reason)


class StruckDatabase(Database):
    """A database of its own in `directory`.

    Nothing is synced: the process that simulates does not die.
    """

    def __init__(self, directory: Path, clock: SteadyClock) -> None:
        self.file = directory / _NAME
        self.file.write_bytes(_empty_ledger())
        super().__init__(f"sqlite:///{self.file}", clock)
        self._failure: BaseException | None = None
        self._after: int | None = None
        event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "before_cursor_execute", lambda *_: self._step(is_commit=False))
        event.listen(self._engine, "commit", lambda _: self._step(is_commit=True))

    def strike(self, failure: BaseException | None, after: int | None = None) -> bool:
        """Raise `failure` in place of the statement that follows so many others, or of the next commit (`after` is None).

        None takes a failure back. Returns whether there was one that was not raised.
        """
        was_left = self._failure is not None
        self._failure, self._after = failure, after
        return was_left

    def _step(self, *, is_commit: bool) -> None:
        if self._failure is None:
            return
        if self._after is not None:
            self._after -= 1
        if is_commit if self._after is None else self._after < 0:
            failure, self._failure = self._failure, None
            raise failure


def _prepare(connection: Any, _record: object) -> None:
    connection.execute("pragma synchronous = off")


@cache
def _empty_ledger() -> bytes:
    """Return the file of a ledger that has its tables: to make them takes longer than a run."""
    with TemporaryDirectory() as directory:
        made = Database(f"sqlite:///{directory}/{_NAME}", SteadyClock(lambda: 0, lambda: 0))
        with made.write():
            pass
        made.close()
        return (Path(directory) / _NAME).read_bytes()
