"""When exactly? A fault at each of many moments, and what came of it (docs/sweep.md).

`moments.py` and `saves.py` say which moments, `outcomes.py` what a run shows, all three pure;
`sweep.py` runs them.
"""
