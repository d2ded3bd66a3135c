"""A store on topics: commands, compacted values, and output, in one transaction."""
