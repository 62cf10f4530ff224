"""Numbers, verdicts and the current state of a run, from its record (pure)."""
