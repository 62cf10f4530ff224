"""The plan: every task, its environment and its program, before anything starts (pure)."""
