"""One unit of work: its events, state and stash, the strategies that order them, its turn and actor, and the ports it needs."""
