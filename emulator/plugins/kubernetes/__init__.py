"""The Kubernetes engine: one Pod a task, in a namespace of a cluster."""
