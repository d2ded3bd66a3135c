"""Formats of events, and what cannot work with them: refused with the key, or a warning."""

import pytest

from notification_service.wiring.composition import refuse_unusable

I = "ipf.processing-data.ingress"  # noqa: E741 (short, as P and R are)
P = "payment-status-notification"
R = f"{P}.resequencer"
M = f"{I}.events.mapped"
CLOUDEVENTS = f"{I}.events.format = cloudevents\n{P}.handler = pass-through\n{R}.strategy = SEQUENCE\n"
MAPPED = f'{CLOUDEVENTS}{I}.events {{ format = mapped, mapped.sequence = "header:version" }}\n'

ORDERS = """
from resequencer.strategies.sequence import Sequence


class Numbers(Sequence):
    def __init__(self, settings):
        self.settings, self.name = settings, "orders:Numbers"
        self.needs_sequence = settings.order_by != "time"
        self.needs_time = not self.needs_sequence
"""


def test_five_lines_are_enough_for_other_events(loaded):
    for text in (CLOUDEVENTS, MAPPED):
        refuse_unusable(loaded(text))


FACTS = f"{P}.aggregation.enabled"


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        (
            f"{P}.handler = payments",
            f"{P}.handler",
            "is payments (the default), which handles only events.format = ipf; set",
        ),
        (f"{R}.strategy = FULL_PAIN001", f"{R}.strategy", "choose SEQUENCE, STRICT_SEQUENCE, COMPLETE, PREVIOUS or WINDOW"),
        (f"{R}.stash-timeout = learned", f"{R}.stash-timeout", "is learned, from the archived envelopes of payments, which only"),
        (f"{FACTS} = true", FACTS, f"only {I}.events.format = ipf brings payments to count"),
        (f"{I}.events.format = ipf\n{FACTS} = true", FACTS, f"and {P}.handler = pass-through reports none: set it to false"),
        (f"{M} {{ sequence = null, id = key }}", f"{R}.strategy", f"orders by numbers, and none is mapped: give {M}.sequence"),
        (f"{R}.strategy = WINDOW", f"{R}.strategy", f"orders by times, and none is mapped: give {M}.time"),
        (f"{I}.events.format = ipf\n{R}.strategy = WINDOW", f"{R}.order-by", "is time, which data envelopes do not bring"),
        (f"{R} {{ strategy = COMPLETE, required-parts = [a] }}", f"{R}.strategy", "waits for parts, and none is mapped: give"),
        (f"{R}.strategy = COMPLETE\n{M}.type = key", f"{R}.required-parts", "is empty, but strategy = COMPLETE waits"),
        (
            f'{R} {{ strategy = COMPLETE, required-parts = ["a,b"] }}\n{M}.type = key',
            f"{R}.required-parts",
            "a name with a comma",
        ),
        (f"{M}.sequence = null\n{R}.strategy = STRICT_SEQUENCE", f"{M}.id", "so nothing identifies an event: give its place"),
        (f'{M}.unit = "value:"', f"{M}.unit", "key, header:NAME, key:PATH or value:PATH"),
        (f'{M}.unit = "value:a..b"', f"{M}.unit", "key, header:NAME, key:PATH or value:PATH"),
        (f'{M}.previous = "headers:x"', f"{M}.previous", "key, header:NAME, key:PATH or value:PATH"),
        (f"{R}.strategy = PREVIOUS\n{M} {{ id = key, previous = key }}", f"{M}.previous", f"is the place of {M}.id too"),
        (f'{M}.unit = "value:$.order.id"', f"{M}.unit", '"value:$.order.id": a path has no $ and no /; write value:order.id'),
        (f'{M}.time = "key:/order/at"', f"{M}.time", "write key:order.at"),
        (f'{M}.id = "value:$[0]"', f"{M}.id", "write value:0"),
        (f'{M}.type = "value:$"', f"{M}.type", "write value:PATH"),
        (f"{P}.handler = passthrough", f"{P}.handler", "did you mean pass-through?"),
        (f"{R}.strategy = sequence", f"{R}.strategy", "did you mean SEQUENCE?"),
        (f"{I}.events.format = protobuf", f"{I}.events.format", "ipf, cloudevents, mapped"),
        (f'{I}.events.replaces = "two words"', f"{I}.events.replaces", "the name of a format"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(refused, text, key, problem):
    assert problem in refused(MAPPED + text)[key]


@pytest.mark.parametrize("order", ["time", "sequence"])
def test_a_strategy_of_ones_own_is_refused_if_the_mapping_lacks_what_it_orders_by(loaded, tmp_path, monkeypatch, order):
    (tmp_path / "orders.py").write_text(ORDERS)
    monkeypatch.syspath_prepend(tmp_path)
    mapped = f'{MAPPED}{M} {{ sequence = null, id = position }}\n{R} {{ strategy = "orders:Numbers", order-by = {order} }}'
    field = {"time": "time", "sequence": "sequence"}[order]
    with pytest.raises(Exception, match=f"orders:Numbers orders by (numbers|times), and none is mapped: give {M}.{field}"):
        refuse_unusable(loaded(mapped))
    refuse_unusable(loaded(f'{mapped}\n{M}.{field} = "header:it"'))


def test_a_strategy_of_ones_own_that_orders_by_times_is_refused_with_data_envelopes(loaded, tmp_path, monkeypatch):
    (tmp_path / "orders.py").write_text(ORDERS)
    monkeypatch.syspath_prepend(tmp_path)
    own = f'{R}.strategy = "orders:Numbers"\n{R}.order-by = '
    with pytest.raises(Exception, match=f"{R}.strategy: orders:Numbers orders by times, which data envelopes do not bring"):
        refuse_unusable(loaded(f"{own}time"))
    refuse_unusable(loaded(f"{own}sequence"))
    refuse_unusable(loaded(f"{CLOUDEVENTS}{own}time"))


@pytest.mark.parametrize(
    "text",
    [
        f"{P} {{ target-type = report-xml, settings = no-such-file.csv }}",
        f"{R} {{ custom-data-keys = [A], pds-data-keys = [B], first-sequence = any, required-parts = [x] }}",
        f'{M}.time = "value:at"',
        f'{M}.type = "value:$type"',
        f'{I}.events.replaces = "my.module:Class-2"',
    ],
)
def test_keys_that_have_no_effect_there_are_no_error(loaded, text):
    refuse_unusable(loaded(CLOUDEVENTS + text))


def test_a_store_of_ones_own_needs_no_payments(loaded):
    own = f'{P}.aggregation {{ enabled = true, stores.jobs.apply = "orders:apply" }}'
    assert loaded(CLOUDEVENTS + own).aggregation.is_enabled


@pytest.mark.parametrize("unit", ["header:order", "value:order.id", "key:order"])
def test_a_unit_that_is_not_the_key_may_be_in_several_partitions(loaded, unit):
    text = f'{MAPPED}{M}.unit = "{unit}"\n'
    (warning,) = loaded(text).warnings
    assert warning.startswith(f"{M}.unit: is {unit}: records have their partition by their key")
    assert loaded(f"{text}ipf.bridge.enabled = true").warnings == ()


@pytest.mark.parametrize("text", ["", CLOUDEVENTS, MAPPED, f'{CLOUDEVENTS}{M}.unit = "header:x"'])
def test_a_unit_that_is_the_key_is_no_reason_for_a_warning(loaded, text):
    assert loaded(text).warnings == ()
