"""Decides about records that are delivered straight from topics. Pure."""
