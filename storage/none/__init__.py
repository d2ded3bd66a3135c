"""Storage `none`: the units' states stay in the process, within bounds."""
