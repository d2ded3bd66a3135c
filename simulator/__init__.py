"""Simulated payment flows: `generate` writes them, `verify` compares what came out with what had to."""
