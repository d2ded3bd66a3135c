"""Compares what the service wrote with what the simulator expected."""
