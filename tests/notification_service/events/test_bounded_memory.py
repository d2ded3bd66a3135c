"""The memory for what is remembered of producers' data is bounded in bytes."""

import tracemalloc

import msgspec
import pytest

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from resequencer.event import Refusal
from resequencer.record import Origin, Partition, Record

_decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=False))


@pytest.mark.slow
def test_three_hundred_entities_of_a_megabyte_are_not_remembered() -> None:
    """When entities were remembered, they took 246 MB."""
    tracemalloc.start()
    for number in range(300):
        entity = f"{number}" + "e" * 1_000_000
        value = msgspec.json.encode({"processingContext": {"unitOfWorkId": "u", "processingEntity": entity}, "flow": "F"})
        decoded = _decoder.decode(Record(Origin(Partition("T", 0), number), value))
        assert not isinstance(decoded, Refusal)
        assert decoded.processing_entity is None
    del decoded, value, entity
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 100_000


def test_the_longest_entity_there_may_be_is_read_however_it_is_written() -> None:
    smile = rb"\ud83d\ude00"
    for length, entity in ((256, "\U0001f600" * 256), (257, None)):
        value = b'{"processingContext": {"unitOfWorkId": "u", "processingEntity": "%s"}, "flow": "F"}' % (smile * length)
        decoded = _decoder.decode(Record(Origin(Partition("T", 0), 1), value))
        assert not isinstance(decoded, Refusal)
        assert decoded.processing_entity == entity
