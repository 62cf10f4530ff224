"""Time, signals and waits: what a long-running process needs of its machine."""
