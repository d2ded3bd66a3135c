"""Decides when a schedule ticks, how far it is, and what it requests. Pure."""
