"""Prometheus's own checker of metrics and rules."""
