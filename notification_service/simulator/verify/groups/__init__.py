"""Compares the group reports with what the facts that came out, and the simulator's messages, let expect."""
