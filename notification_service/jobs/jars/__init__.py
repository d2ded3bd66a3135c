"""The jars that the jobs need, which Maven fetches once, and how it does."""
