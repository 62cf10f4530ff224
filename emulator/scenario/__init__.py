"""Scenarios as users write them: schema, loader, and what is derived from them (pure)."""
