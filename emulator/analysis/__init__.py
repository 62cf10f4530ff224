"""What a record says: numbers, verdicts, and what it looks like now (pure)."""
