"""Scenarios written as manifests of other tools (pure): one file for each format."""
