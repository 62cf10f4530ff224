"""Manifests as input: a TFJob, a PyTorchJob, Helm values or a cluster's JSON becomes a scenario."""
