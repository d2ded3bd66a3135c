"""Keeps the state of a partition's units as bytes, with the few fields it must find things by."""
