"""The unit between arrivals and wakes: deadline, bound, inheritance, and stored changes."""

import re
import tracemalloc

import msgspec
import pytest
from harness.driving import PARTITION, Envelopes, decoder, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from notification_service.payments.envelope import MAX_OBJECTS
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.errors import ConfigurationError, PermanentError, TransientError
from resequencer.event import FIRST_FORMAT
from resequencer.notification import Notification
from resequencer.order import OrderKind
from resequencer.record import Origin, Record
from resequencer.storage_port import StorageRefused, WaitKind
from resequencer.strategies.sequence import MAX_FLOWS
from resequencer.strategies.window import OrderBy
from resequencer.unit import Wake, entry_of
from resequencer.unit_codec import UnitCodec, encode_state

EVENT = {"eventName": "PaymentAccepted", "processFlowName": "PaymentInitiationFlow", "reasonCode": "AC04"}


def test_the_deadline_is_the_oldest_arrival_plus_the_sum_of_the_delays_and_later_ones_do_not_extend_it(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(5))
    first_deadline = unit.last.waits.wakes_at
    assert first_deadline == unit.now + 3_000 + 6_000 + 12_000
    unit.now += 10_000
    assert unit.arrive(envelopes(4)).waits.wakes_at == first_deadline


def test_a_stash_timeout_replaces_the_sum(envelopes):
    unit = drive("SEQUENCE", stash_timeout_ms=500)
    assert unit.arrive(envelopes(2)).waits.wakes_at == unit.now + 500


def test_when_the_oldest_has_left_the_deadline_is_that_of_the_next_oldest(envelopes):
    unit = drive("STRICT_SEQUENCE")
    unit.arrive(envelopes(2, flow="A"))
    unit.now += 1_000
    unit.arrive(envelopes(2, flow="B"))
    assert unit.arrive(envelopes(1, flow="A")).waits.since == unit.now


def test_beyond_its_bound_a_stash_is_released_as_at_its_deadline(envelopes):
    unit = drive("SEQUENCE", stash_limit=3)
    unit.arrive(*(envelopes(number) for number in (9, 7, 5)))
    turn = unit.arrive(envelopes(3))
    assert unit.sequences == [3, 5, 7, 9]
    assert [(each.cause, each.missing, each.envelopes) for each in turn.releases] == [(Wake.BOUND, "sequence:1", 4)]


def test_a_release_ends_the_actor_and_its_successor_inherits_the_unit(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(2, mds=["PAIN_001"]))
    assert unit.expire().is_over
    unit.reincarnate()
    unit.arrive(envelopes(3))
    _, data, marks, _ = unit.handler.seen[-1]
    assert (data.find_mds("PAIN_001"), marks.incomplete) == (b'{"at":0}', None)


def test_what_waits_is_told_with_since_when_and_what_for(envelopes):
    unit = drive("SEQUENCE")
    waits = unit.arrive(envelopes(1), envelopes(4)).waits
    assert (waits.kind, waits.waits_for, waits.since, waits.stashed) == (WaitKind.DEADLINE, "sequence:2", unit.now, 1)
    assert waits.stashed_bytes > 0


def test_stashing_the_hundredth_costs_the_storage_what_the_first_cost(envelopes):
    unit = drive("SEQUENCE")
    changes = [unit.arrive(envelopes(number)).change for number in range(200, 100, -1)]
    assert {len(change.state) for change in changes} == {len(changes[0].state)}
    assert {(len(change.stash_added), len(change.stash_removed), change.data) for change in changes} == {(1, 0, None)}


def test_payment_data_is_written_only_when_it_changed(envelopes):
    unit = drive("SEQUENCE")
    assert unit.arrive(envelopes(1, mds=["PAIN_001"])).change.data is not None
    assert unit.arrive(envelopes(2)).change.data is None


def test_an_envelope_stashed_and_taken_up_in_one_turn_never_meets_the_storage(envelopes):
    change = drive("SEQUENCE").arrive_together(envelopes(2), envelopes(1)).change
    assert (change.stash_added, change.stash_removed, change.waits) == ((), (), None)


def test_the_longest_wait_is_told(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(2))
    unit.now += 1_234
    assert unit.arrive(envelopes(1)).longest_wait_ms == 1_234


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001", "WINDOW"]),
    st.lists(st.tuples(st.sampled_from("AB"), st.integers(1, 6), st.booleans(), st.integers(0, 9_000)), max_size=14),
)
def test_a_new_incarnation_at_every_turn_does_the_same_as_one_that_lives_on(strategy, steps):
    """This holds for any arrivals, and whenever the unit is woken."""
    units = [drive(strategy, stash_limit=5, order_by=OrderBy.SEQUENCE) for _ in range(2)]
    units[1].reincarnates = True
    for unit in units:
        envelopes = Envelopes()
        for flow, number, has_parts, pause_ms in steps:
            unit.now += pause_ms
            mds = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION") if has_parts else ("PAIN_001_PAYMENT_TRANSACTION",)
            unit.arrive(envelopes(number, flow=flow, identity=f"{flow}{number}", mds=mds[: number % 3]))
            unit.wake(Wake.DEADLINE)
    alive, reborn = units
    assert reborn.left == alive.left
    assert reborn.stored == alive.stored
    assert [(e.envelope_id, d, m) for e, d, m, _ in reborn.handler.seen] == [
        (e.envelope_id, d, m) for e, d, m, _ in alive.handler.seen
    ]


NAMES = [
    ("SEQUENCE", {}),
    ("SEQUENCE", {"first_sequence": 0}),
    ("SEQUENCE", {"first_sequence": None}),
    ("STRICT_SEQUENCE", {}),
    ("STRICT_SEQUENCE", {"first_sequence": 0}),
    ("COMPLETE", {"required_parts": ("A",)}),
    ("COMPLETE", {"required_parts": ("A", "B")}),
    ("PREVIOUS", {}),
    ("WINDOW", {"order_by": OrderBy.SEQUENCE}),
    ("WINDOW", {"order_by": OrderBy.TIME}),
]


def codec(strategy, **limits):
    return UnitCodec(make_strategy(StrategySettings(strategy)), decoder(**limits).decode, LATEST_OBJECTS)


def test_a_waiting_unit_is_refused_by_another_strategy(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(2))
    with pytest.raises(ConfigurationError, match="run SEQUENCE until nothing waits"):
        codec("FULL_PAIN001").restore(PARTITION, unit.stored)


@pytest.mark.parametrize("waits", range(len(NAMES)))
def test_what_waits_in_any_strategys_state_is_refused_by_every_other(envelopes, waits):
    units = [drive(name, **how) for name, how in NAMES]
    unit = units[waits]
    unit.arrive(replace(envelopes(2), previous="e", time=unit.now))
    if unit.stored is None or not unit.stored.stash:  # What comes first begins.
        unit.arrive(envelopes(4))
    codecs = [UnitCodec(each.strategy, lambda record: unit.came[record.origin.offset], LATEST_OBJECTS) for each in units]
    assert codecs[waits].restore(PARTITION, unit.stored).stash
    for other, each in enumerate(codecs):
        if other != waits:
            with pytest.raises(ConfigurationError, match=re.escape(f"run {unit.strategy.name} until nothing waits")):
                each.restore(PARTITION, unit.stored)


def test_an_idle_unit_begins_afresh_under_another_strategy_with_its_handled_ids(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.arrive(first)
    restored = codec("STRICT_SEQUENCE").restore(PARTITION, unit.stored)
    assert restored.state == restored.state.__class__()
    assert restored.find_digest(first.id_hash) == first.digest


_HELD = b"""{"id":"order-2","order":"hold","by":"anna","because":"a test","at":"1970-01-01T00:16:40.000Z","unit":"uow-1",\
"waits-for":"sequence:2","since":"1970-01-01T00:16:40.000Z","for-ms":60000}""".hex()


@pytest.mark.parametrize(
    ("version", "stored"),
    [
        (1, "9601a853455155454e434595029192a14101909000c41089b9b7af412e5043aee4988d52dbefc2ffc0"),
        (
            2,
            "9902a853455155454e434595029192a14101909000c41089b9b7af412e5043aee4988d52dbefc2ffc0c095c4b8"
            f"{_HELD}66ce000f4240ce00102ca0cdea60ce00102ca0",
        ),
        (
            3,
            "9a03a853455155454e434595029192a14101909000c41089b9b7af412e5043aee4988d52dbefc2ffc0c095c4b8"
            f"{_HELD}66ce000f4240ce00102ca0cdea60ce00102ca0a86d61707065642d31",
        ),
        (4, "9a04a853455155454e4345950190909000c400ff9c0100ce000f4240c0c2ffc000c0c2c3c0c0c0c0a3697066"),
    ],
)
def test_a_state_of_an_earlier_format_opens_and_is_stored_again_as_it_was(envelopes, version, stored):
    unit, state, events = drive("SEQUENCE"), bytes.fromhex(stored), "mapped-1" if version == 3 else FIRST_FORMAT
    unit.waits = version == 4
    unit.arrive(envelopes(1), envelopes(3))
    snapshot = msgspec.structs.replace(unit.stored, state=state)
    restored = codec("SEQUENCE")._replace(events=events).restore(PARTITION, snapshot)
    assert (state[1], restored.waiting_order, len(restored.stash)) == (version, None, 1)
    assert encode_state(restored, unit.strategy, events) == state


def test_a_state_of_a_newer_format_is_refused_with_the_remedy(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1))
    newer = msgspec.structs.replace(unit.stored, state=msgspec.msgpack.encode([6, {"quite": "different"}]))
    with pytest.raises(StorageRefused, match=r"format 6.*run the newer version"):
        codec("SEQUENCE").restore(PARTITION, newer)


@pytest.mark.parametrize(
    ("part", "intact", "damaged"),
    [
        ("state", b"", b"\xc1"),
        ("state", b"\xa8SEQUENCE", b"\xa8SEQUENC\xff"),
        ("state", b"SEQUENCE\x95", b"SEQUENCE\xc1"),
        ("data", b"", b"\xc1"),
        ("data", b"PAIN_001", b"PAIN_00\xff"),
        ("stash", b"", b"\xc1"),
        ("stash", b"\xc5", b"\xc0"),
    ],
)
def test_whatever_is_damaged_in_a_snapshot_is_refused_and_the_unit_named(envelopes, part, intact, damaged):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1, mds=["PAIN_001"]), envelopes(3))
    stored = getattr(unit.stored, part)
    damage = lambda data: damaged + data if not intact else data.replace(intact, damaged)  # noqa: E731
    malformed = (msgspec.structs.replace(stored[0], body=damage(stored[0].body)),) if part == "stash" else damage(stored)
    assert malformed != stored
    with pytest.raises(StorageRefused, match=r"'uow-1'.*damaged"):
        codec("SEQUENCE").restore(PARTITION, msgspec.structs.replace(unit.stored, **{part: malformed}))


def test_a_stashed_record_that_is_refused_today_becomes_a_dead_letter_and_the_rest_goes_on(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(2), envelopes(3))
    entries = unit.stored.stash
    malformed = msgspec.structs.replace(entries[0], body=entries[0].body.replace(b"unitOfWorkId", b"unitOfWorkIx"))
    unit.stored = msgspec.structs.replace(unit.stored, stash=(malformed, entries[1]))
    unit.reincarnate()
    unit.expire()
    assert [str(each.reason) for each in unit.dead] == ["no-unit-of-work"]
    assert unit.sequences == [3]
    assert unit.stored.stash == ()


def test_a_thousand_flows_in_one_unit_are_released_by_looking_at_each_once():
    """The test counts the strategy's answers instead of time: each look at the stash asks the strategy."""
    unit, envelopes = drive("STRICT_SEQUENCE"), Envelopes()
    asked = []
    step = unit.strategy.step
    unit.strategy.step = lambda state, envelope: asked.append(envelope) or step(state, envelope)
    unit.arrive_together(*(envelopes(2, flow=f"flow-{number}") for number in range(1_000)))
    unit.expire()
    assert len(unit.handled) == 1_000
    assert len(asked) == 1_000


@pytest.mark.parametrize("order", ["sorted", "reversed"])
def test_a_stash_of_a_thousand_that_comes_loose_costs_a_thousand_looks(order):
    unit, envelopes = drive("SEQUENCE"), Envelopes()
    made = [envelopes(number) for number in range(2, 1_001)]
    unit.arrive_together(*(made if order == "sorted" else reversed(made)))
    asked = []
    step = unit.strategy.step
    unit.strategy.step = lambda state, envelope: asked.append(envelope) or step(state, envelope)
    unit.arrive(envelopes(1))
    assert unit.sequences == list(range(1, 1_001))
    assert len(asked) == 1_000


def test_a_unit_of_too_many_flows_is_refused_one_more_and_goes_on():
    for strategy in ("SEQUENCE", "STRICT_SEQUENCE"):
        unit, envelopes = drive(strategy), Envelopes()
        unit.arrive_together(*(envelopes(1, flow=f"flow-{number}") for number in range(MAX_FLOWS + 1)))
        assert len(unit.handled) == MAX_FLOWS
        assert [str(each.reason) for each in unit.dead] == ["handler-failed"]
        assert "'flow-256'" in unit.dead[0].error
        unit.arrive(envelopes(2, flow="flow-0"))
        assert unit.handled[-1] == ("flow-0", 2)


@pytest.mark.parametrize("kind", ["mds", "pds", "custom"])
def test_a_unit_of_too_many_objects_of_a_kind_is_refused_more_and_goes_on(kind):
    unit, envelopes = drive("SEQUENCE"), Envelopes()
    unit.arrive(envelopes(1, **{kind: [f"key-{number}" for number in range(MAX_OBJECTS)]}), envelopes(2, **{kind: ["one"]}))
    assert [str(each.reason) for each in unit.dead] == ["too-many-objects"]
    assert str(MAX_OBJECTS) in unit.dead[0].error
    others = [each for each in ("mds", "pds", "custom") if each != kind]
    unit.arrive(envelopes(2, **{each: ["one"] for each in others}))
    assert unit.sequences == [1, 2]


@pytest.mark.parametrize("event", [{}, {"uniqueId": "a|b|1", "objectType": "PROCESS_FLOW_EVENT", "object": EVENT}])
@pytest.mark.parametrize("field", ["mdsObjects", "pdsObjects", "customObjects", "processObjects"])
def test_a_stash_counts_what_its_envelopes_take_in_memory(field, event):
    value = msgspec.json.encode({"processingContext": {"unitOfWorkId": "u"}, "flow": "A", field: [event] * MAX_OBJECTS})
    headers = (("trace", b"x" * 50_000),)

    def decoded():
        record = Record(
            Origin(PARTITION, 1), bytes(bytearray(value)), b"k" * 1_000, ((headers[0][0], bytes(bytearray(headers[0][1]))),)
        )
        return decoder().decode(record)

    decoded()
    tracemalloc.start()
    held = entry_of(decoded(), "", 0, 0)
    takes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert takes < held.size < 4 * takes + 10_000


def in_format(unit, events):
    """Return the unit as it is stored with the name of this format."""
    return msgspec.structs.replace(unit.stored, state=encode_state(unit.unit, unit.strategy, events))


@pytest.mark.parametrize("is_held", [False, True])
def test_a_unit_of_a_named_format_is_restored_by_the_same_format(envelopes, is_held):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1), envelopes(3))
    if is_held:
        unit.order(OrderKind.HOLD, for_ms=60_000)
    restored = codec("SEQUENCE")._replace(events="mapped-1").restore(PARTITION, in_format(unit, "mapped-1"))
    assert restored.saved() == unit.unit.saved()


def test_an_older_version_refuses_a_unit_of_a_named_format_by_its_number(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1))
    number, *_, events = msgspec.msgpack.decode(in_format(unit, "mapped-1").state)
    assert (number, events) == (3, "mapped-1")
    assert msgspec.msgpack.decode(in_format(unit, FIRST_FORMAT).state)[0] == 1


def test_an_idle_unit_of_another_format_begins_afresh_and_an_equal_id_is_no_duplicate(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.arrive(first)
    unit.unit = codec("SEQUENCE").restore(PARTITION, in_format(unit, "mapped-1"))
    assert unit.unit.is_like_new(unit.strategy.initial(), LATEST_OBJECTS.empty)
    turn = unit.arrive(replace(first, digest=bytes(8)))
    assert (turn.handled, turn.duplicates, [type(each) for each in turn.output]) == (1, 0, [Notification])


class _Torn:
    """A data handler that cannot read what another one has stored."""

    def __getattr__(self, name):
        return getattr(LATEST_OBJECTS, name)

    def decode(self, stored):
        raise PermanentError("not mine")


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_data_of_another_format_are_not_read_and_the_next_change_replaces_them(envelopes, waits, keeps):
    """When they were read, what another data handler had stored ended the worker, after the new format was accepted."""
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1, mds=["PAIN_001"]), *([envelopes(3)] if waits else []))
    assert unit.stored.data
    restored = UnitCodec(unit.strategy, decoder().decode, _Torn()).restore(PARTITION, in_format(unit, "mapped-1"))
    assert (restored.data, restored.data_bytes, restored.gathered_to) == (LATEST_OBJECTS.empty, 0, -1)
    unit.unit = restored
    turn = unit.arrive(envelopes(1, mds=["PAIN_001"])) if keeps else unit.wake(Wake.REMAINDER)
    assert turn.change is not None
    assert turn.change.data == LATEST_OBJECTS.encode(restored.data)
    again = codec("SEQUENCE").restore(PARTITION, unit.stored)
    assert (again.data, again.rare is None or not again.rare.has_old_data) == (restored.data, True)
    assert (restored.data == LATEST_OBJECTS.empty) is not keeps
    assert unit.arrive(envelopes(5)).change.data is None


def test_a_unit_of_another_format_whose_actor_stops_is_stored_without_the_old_data(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1, mds=["PAIN_001"]))
    unit.unit = codec("SEQUENCE").restore(PARTITION, in_format(unit, "mapped-1"))
    assert (unit.wake(Wake.PASSIVATE).is_last, unit.wake(Wake.PASSIVATE).is_last) == (False, True)
    assert not codec("SEQUENCE").restore(PARTITION, unit.stored).data_bytes


def test_what_waits_in_a_unit_of_another_format_is_taken_again_as_if_it_had_just_come(envelopes):
    unit = drive("SEQUENCE")
    unit.handler.failures = {"2": [TransientError("away")] * 9}
    unit.arrive(envelopes(4), envelopes(3), envelopes(2, identity="2"))
    unit.expire()
    began_at = unit.unit.retry.entry.stashed_at
    unit.unit = codec("SEQUENCE").restore(PARTITION, in_format(unit, "mapped-1"))
    assert (unit.unit.retry, [each.envelope.sequence for each in unit.unit.queue]) == (None, [4, 3, 2])
    turn = unit.wake(Wake.RETRY)
    assert (unit.unit.queue, turn.stashed, turn.removed) == ((), 3, [])
    assert turn.waits.wakes_at == began_at + 3_000 + 6_000 + 12_000
