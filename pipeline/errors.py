"""Why a job publishes nothing."""

from domain.errors import ResequencerError


class JobRefused(ResequencerError):
    """What was read is not fit to be published: the source or table, the value, the threshold and the remedy are in the text."""
