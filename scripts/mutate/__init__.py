"""Mutants of the package, and the quick tests that find them."""
