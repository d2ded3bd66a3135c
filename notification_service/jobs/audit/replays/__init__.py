"""The replay of a unit by its own pure code: what the output has to show for it to be right."""
