"""How hostile values are shown, and how ids are hashed."""

from notification_service.events.identifiers import hash_id, shown


def test_a_shown_value_is_short_and_stays_on_its_line() -> None:
    assert shown("a\n\x1b[0m") == r"'a\n\x1b[0m'"
    assert shown(b"\xff\n") == r"b'\xff\n'"
    assert shown("ä0".encode()) == "'ä0'"
    assert shown("\ud800") == r"'\ud800'"
    assert len(shown("\x00" * 10_000)) < 300
    assert shown("x" * 61).endswith("…")


def test_an_id_is_hashed_by_its_utf8() -> None:
    assert len(hash_id("ü")) == 8
    assert hash_id("ü") != hash_id("u")
