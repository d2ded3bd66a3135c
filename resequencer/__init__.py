"""One unit of work: its state and stash, the strategies that order its envelopes, the handlers that notify, and its actor."""
