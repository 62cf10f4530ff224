"""Kubeflow's Trainer v2: TrainJobs with their runtimes, and what these are made of.

A runtime is the template of a JobSet, and a JobSet is a list of indexed Jobs. So a TrainJob becomes
a JobSet (`trainjob.py`), a Job is one of a single replicated job, and a JobSet becomes a scenario
(`jobset.py`). Its restarts are those of the section `jobset` (`section.py`): `ladder.py` decides
them, and `jobs.py` performs what follows.
"""
