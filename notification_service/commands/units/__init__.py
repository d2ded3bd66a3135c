"""The command `units`: what waits, one unit with its story, and orders for units."""
