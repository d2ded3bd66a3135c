"""Writes the envelopes of simulated payments, out of order as told, and what is expected of them."""
