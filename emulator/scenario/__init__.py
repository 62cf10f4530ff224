"""What users write: models, the reading of them, and the timeline of its faults (pure)."""
