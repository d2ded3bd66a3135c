"""What `check` prints can be read again: a text that looks like a duration or a number stays a text."""

from pathlib import Path

import pytest

from daemon.configuration.configuration import load

CACHE = "payment-status-notification.storage.infinispan.cache"


@pytest.mark.parametrize("text", ["5s", "123", "7M", "a5s", "1.5"])
def test_a_text_that_looks_like_something_else_is_read_again_as_it_was(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text(f'{CACHE} = "{text}"\n')
    printed = "\n".join(str(each) for each in load(file).effective)
    file.write_text(printed)
    assert load(file).storage.infinispan.cache == text
