"""Faults: one class for each kind, what users write about them, and the schedule of a run."""
