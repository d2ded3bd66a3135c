"""Strategies decide whether an envelope is handled now. Pure, and one registry of them."""
