"""Faults inside a task: of its threads and children, of what it sees, and by a hook of its own."""
