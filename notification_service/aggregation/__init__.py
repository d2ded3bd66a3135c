"""Aggregation: values that change by commands, one after the other and exactly once; and the payments of a message."""
