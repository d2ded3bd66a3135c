"""A region: a source and one or several sinks that commit and reset together."""
