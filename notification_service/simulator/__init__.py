"""Simulated payment flows: `generate` writes their envelopes, `verify` compares the output with the expectations."""
