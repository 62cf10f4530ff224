"""Metrics of tasks and GPUs: their catalogue, how they are measured, samples and totals."""
