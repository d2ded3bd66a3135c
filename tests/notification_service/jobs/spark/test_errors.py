"""How an exception of Spark is shown to a person."""

import pytest

from notification_service.jobs.spark.session import cause_of


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("no such path\n\n  at org.apache.spark.Somewhere\n", "no such path"),
        (
            "from the Python worker:\nTraceback\n  File x\nOSError: /x is full\n\tat java.Thread",
            "from the Python worker: OSError: /x is full",
        ),
        ("alone:", "alone:"),
        ("", "ValueError"),
    ],
    ids=["first", "python", "alone", "nothing"],
)
def test_it_is_one_line_and_names_the_cause(text: str, cause: str) -> None:
    assert cause_of(ValueError(text)) == cause
