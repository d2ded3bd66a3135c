"""ISO 20022 as data: the schema of pain.002, the parts of pain.001 that are used, and the code sets."""
