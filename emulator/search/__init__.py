"""When exactly? A fault at each of many moments, and what came of it (docs/sweep.md).

`question.py`, `moments.py` and `saves.py` say which runs, `outcomes.py` and `points.py` what they
show, all pure; `sweep.py` runs them.
"""
