"""One turn of a unit, as steps over one working copy: arrivals are handled or stashed, and what became acceptable is handled."""
