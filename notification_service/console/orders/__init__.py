"""Orders as people give and follow them: making, proposing, approving, and what came of each."""
