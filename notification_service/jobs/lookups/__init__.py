"""The job that builds the lookups from their sources, and publishes them as a release."""
