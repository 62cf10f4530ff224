"""Kubeflow's training operator: its jobs in a scenario, as input, and under way."""
