"""ISO 20022 as data: what pain.002 allows, what is taken of a pain.001, and the code sets."""
