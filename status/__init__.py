"""The reports of a service's workers: their structure, where they lie, and how they read as text."""
