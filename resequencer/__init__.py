"""One unit of work: its state and stash, the strategies that order it, the handlers that notify, and its actor."""
