"""What is due: an instant that cannot be applied is given up, and does not end the worker at each start."""

from collections.abc import Sequence

import pytest
from harness.kept_values import KeptValues

from notification_service.aggregation.core import MAX_VALUE_BYTES, Change, Command, Completion, Processor, Slot, Stored
from resequencer.errors import PermanentError


class Failing:
    """`fails` in one of its methods, for the key `bad`."""

    def __init__(self, fails: str) -> None:
        self._fails = fails

    def apply(self, head: bytes | None, member: bytes | None, command: Command, now: int) -> Change:
        raise AssertionError(head, member, command, now)

    def dated_back(self, head: bytes, now: int) -> None:
        del head, now

    def on_due(self, key: str, head: bytes, now: int, counts_from: int | None) -> Change:
        del counts_from
        del head, now
        if key == "bad" and self._fails == "on_due":
            raise PermanentError("it cannot be")
        return Change(b"x" * (MAX_VALUE_BYTES + 1) if key == "bad" and self._fails == "size" else b"after")

    def on_value(self, key: str, old: bytes | None, new: bytes | None, now: int) -> Sequence[Completion]:
        del old, new, now
        if key == "bad" and self._fails == "on_value":
            raise PermanentError("it cannot be")
        return (Completion(key.encode(), (), b"told"),)


@pytest.mark.parametrize("fails", ["on_due", "on_value", "size"])
def test_what_is_due_and_cannot_be_done_is_given_up_and_the_other_keys_go_on(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    values = KeptValues()
    values.stored = {Slot("bad"): Stored(b"before", 1), Slot("good"): Stored(b"before", 1)}
    turn = Processor(Failing(fails)).wake(values, 2, 2)
    assert turn.changes == {Slot("bad"): Stored(b"before"), Slot("good"): Stored(b"after")}
    assert [each.key for each in turn.output if isinstance(each, Completion)] == [b"good"]
    assert "what was due for 'bad' cannot be done, and is given up" in caplog.text
