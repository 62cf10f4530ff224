"""Scenarios run from Python: `emulator.up`, `emulator.run`, and the fixtures of pytest."""
