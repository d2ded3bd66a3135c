"""Storage `none`: the units' states are in the process's memory only, within bounds."""
