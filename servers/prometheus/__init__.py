"""Prometheus, which scrapes metrics and evaluates rules, and its checker of both."""
