"""The audit: checks against the records alone that the service published what it had to, and names every deviation."""
