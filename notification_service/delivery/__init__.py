"""Delivery: brings notifications to receivers behind HTTP, in the order of their units, as often as necessary."""
