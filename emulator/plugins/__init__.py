"""Plug-ins: each folder is found by its entry points in pyproject.toml, and no core imports it."""
