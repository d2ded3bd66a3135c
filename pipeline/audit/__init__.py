"""The audit: proves from records alone that the service let out what it had to, or names every deviation."""
