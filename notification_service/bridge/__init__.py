"""The bridge: appends the messages of a source that cannot replay to a replayable start, and then acknowledges them."""
