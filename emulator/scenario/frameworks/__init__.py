"""Frameworks: how the tasks of each find each other, and what their roles mean; one file each."""
