"""The lookups for the service: releases that a job has published. Each is a directory that never changes."""
