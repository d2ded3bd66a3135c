"""An aggregate for tests: each member has a number, the head their count and sum; it is complete with its last member."""

import json
from collections.abc import Sequence
from typing import Any

from notification_service.aggregation.core import Change, Command, Completion
from resequencer.clock import Instant
from resequencer.errors import PermanentError


class Sums:
    """A command `{"number": 3, "of": 10}` sets a member. `{"due": ms}` makes the head due then, `{"end": ms}` ends it then.

    It would count a repeated command twice if it were applied twice: `applied` is a number of commands, not of members.
    """

    def apply(self, head: bytes | None, member: bytes | None, command: Command, now: Instant) -> Change:
        del now
        fields: dict[str, Any] = json.loads(command.body)
        if "wrong" in fields:
            raise PermanentError("it says that it is wrong")
        old: dict[str, Any] = json.loads(head) if head else {"members": 0, "sum": 0, "applied": 0}
        due = fields.get("due", old.get("due"))
        if command.member is None:
            return Change(_encode({**old, "due": due, "ends": "end" in fields, "applied": old["applied"] + 1}), due=due)
        before = json.loads(member) if member else None
        new = {
            **old,
            "members": old["members"] + (before is None),
            "sum": old["sum"] + fields["number"] - (before or 0),
            "applied": old["applied"] + 1,
            "of": fields["of"],
        }
        return Change(_encode(new), _encode(fields["number"]), due)

    def dated_back(self, head: bytes, now: Instant) -> None:
        del head, now

    def on_due(self, key: str, head: bytes, now: Instant, counts_from: Instant | None) -> Change:
        del counts_from
        del key, now
        old = json.loads(head)
        if old.get("ends"):
            return Change(None, forgets_members=True)
        return Change(_encode({**old, "due": None, "rang": old.get("rang", 0) + 1}))

    def on_value(self, key: str, old: bytes | None, new: bytes | None, now: Instant) -> Sequence[Completion]:
        del now
        before, after = json.loads(old) if old else {}, json.loads(new) if new else {}
        is_complete = after.get("members") == after.get("of") and before.get("members") != before.get("of", 0)
        has_rung = after.get("rang", 0) > before.get("rang", 0)
        if not (is_complete and after.get("of")) and not has_rung:
            return ()
        return (Completion(key.encode(), (("kind", b"rang" if has_rung else b"complete"),), _encode(after)),)


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()
