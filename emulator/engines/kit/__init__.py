"""What engines share: the output of tasks, commands into them, gates, images, and origins."""
