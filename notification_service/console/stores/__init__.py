"""Stores: what their values are, and what they complete, as pages, operations and streams."""
