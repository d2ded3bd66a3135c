"""The storages: each keeps the state of a partition's units as bytes, with the few fields needed to find them."""
