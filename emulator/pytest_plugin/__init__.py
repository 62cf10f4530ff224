"""The pytest plugin: scenarios as tests, clusters as fixtures. docs/testing.md is its guide."""
