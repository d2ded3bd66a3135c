"""Makes the bridge from the configuration, and what it reports by."""
