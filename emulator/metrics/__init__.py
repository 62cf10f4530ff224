"""What tasks use: CPU, memory, GPUs."""
