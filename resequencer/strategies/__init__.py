"""The strategies, which decide whether an envelope is handled now, and their registry. Pure."""
