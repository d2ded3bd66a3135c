"""The deterministic id of a notification."""

from base64 import b32encode
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from resequencer.notification import group_report_id, notification_id

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=256)


@given(texts, texts, st.integers(0, 10_000))
def test_it_is_the_base32_of_the_hash_of_unit_envelope_id_and_index(unit, envelope_id, index):
    hashed = sha256(f"{unit}\0{envelope_id}\0{index}".encode()).digest()
    assert notification_id(unit, envelope_id, index) == b32encode(hashed)[:32].decode()


@given(texts, st.integers(1, 10_000))
def test_that_of_a_report_on_a_group_is_the_base32_of_the_hash_of_group_and_number(group, number):
    assert group_report_id(group, number) == b32encode(sha256(f"{group}\0{number}".encode()).digest())[:32].decode()


def test_it_fits_the_35_characters_of_a_message_id():
    assert len(notification_id("uow-1", "PaymentFlow|e1|1", 0)) == 32
