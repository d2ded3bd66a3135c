"""Lookups as the service reads them: releases that a job has published, each a directory that never changes."""
