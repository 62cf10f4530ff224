"""Plug-ins of ours, a folder each. What one adds is found by its entry points in pyproject.toml.

`emulator/runtime/plugins.py` says what can be added, and who asks for it. Nothing imports these.
"""
