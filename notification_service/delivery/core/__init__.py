"""Decides about deliveries: what an answer means, the gate of a receiver, rows and jobs as values. Pure."""
