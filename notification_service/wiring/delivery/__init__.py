"""Delivery as the commands run it: made from the configuration."""
