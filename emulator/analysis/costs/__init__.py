"""The money: the prices of a scenario, and what a run of it cost (pure)."""
