"""Kubeflow's training operator: its jobs in a scenario, as input, and under way.

Nothing else imports this folder: `emulator/scenario/extension.py` lists it, and the rest asks there
for the parts that are named here.
"""

from __future__ import annotations

from collections.abc import Mapping

ADDED: Mapping[str, str] = {
    "section": "section:Operator",
    "formats": "formats:FORMATS",
    "conditions": "conditions:conditions_of_job",
    "strategy": "job:OperatorJob",
}
"""What the rest may ask for: the module here that has it, and its name there."""
