"""Types, units, limits and patterns for what users write and programs print (pure)."""
