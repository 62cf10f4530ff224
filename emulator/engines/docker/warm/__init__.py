"""Warm starts: containers that have imported what takes long, and wait for a run.

`parent.py` runs in each of them and forks the task. `cluster.py` makes, leases and resets them,
`pool.py` keeps them between runs, and `starts.py` is the engine that uses them.
"""
