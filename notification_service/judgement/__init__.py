"""Whether what was sent is what had to be sent."""
