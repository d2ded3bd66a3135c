"""A strategy that gathers: what an envelope brings counts, also if another one is dead-lettered while its handler is called."""

import pytest
from harness.driving import PAIN_001, Envelopes, drive

from resequencer.errors import TransientError
from resequencer.order import OrderKind
from resequencer.unit import Wake


@pytest.mark.parametrize("waits", [True, False])
def test_an_ordered_dead_letter_behind_a_head_keeps_what_the_head_brings(envelopes: Envelopes, waits: bool) -> None:
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(1, mds=PAIN_001))
    unit.waits = waits
    head = envelopes(2, mds=("SEEN",))
    unit.handler.fail(head, *([] if waits else [TransientError("away")]))
    unit.arrive(head)
    call, refused = unit.call, envelopes(3)
    unit.arrive(refused)
    unit.order(OrderKind.DEAD_LETTER, position=refused.offset)
    if waits:
        unit.call = call
        unit.answer()
    else:
        unit.wake(Wake.RETRY, after_ms=60_000)
    assert unit.sequences == [1, 2]
    assert "SEEN" in dict(unit.unit.data.mds)
    _, data, _, _ = unit.handler.seen[-1]
    assert "SEEN" in dict(data.mds)
