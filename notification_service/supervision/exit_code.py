"""What the command line's exit codes mean (docs/contract.md, section 2)."""

from enum import IntEnum

from resequencer.errors import ResequencerError


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION_REFUSED = 3
    OUT_OF_REACH = 4
    NOT_JUDGED = 5
    INTERRUPTED = 130


class NotJudged(ResequencerError):
    """The audit could not finish, so the output is neither proved nor refuted."""
