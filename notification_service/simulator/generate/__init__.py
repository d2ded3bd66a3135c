"""Writes the envelopes of simulated payments in a planned disorder, and the expectations for them."""
