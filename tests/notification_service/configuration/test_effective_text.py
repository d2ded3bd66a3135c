"""What `check` prints can be read again: a text that looks like a duration or a number stays a text."""

from pathlib import Path

import pytest

from notification_service.configuration.configuration import load

QUEUES = "ipf.processing-data.ingress.jms.partitions"
CACHE = "payment-status-notification.storage.infinispan.cache"


@pytest.mark.parametrize("text", ["5s", "123", "7M", "a5s", "1.5"])
def test_a_text_that_looks_like_something_else_is_read_again_as_it_was(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text(f'{CACHE} = "{text}"\n')
    printed = "\n".join(str(each) for each in load(file).effective)
    file.write_text(printed)
    assert load(file).storage.infinispan.cache == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('[{ queue = "A" }, { queue = "B" }]', "2 elements"),
        ('[{ queue = "A" } { queue = "B" }]', "1 element"),
        ('[\n{ queue = "A" }\n{ queue = "B" }\n]', "2 elements"),
    ],
)
def test_a_list_of_objects_says_how_many_there_are(text: str, count: str, tmp_path: Path) -> None:
    """Without a comma, and on one line, two objects are one by the language: the second takes the place of the first."""
    file = tmp_path / "x.conf"
    file.write_text(f"{QUEUES} = {text}\n")
    (shown,) = (str(each) for each in load(file).effective if each.path == QUEUES)
    assert shown.endswith(f"]  # {count}, file {file}:1")
    file.write_text(shown)
    assert str(next(each for each in load(file).effective if each.path == QUEUES)) == shown
