"""`emulate try`: whether one's own program survives a preemption, without a scenario.

`command.py` finds out what a command runs, `question.py` writes the scenario that is asked,
`moments.py` chooses when each worker is preempted, `answer.py` says what the records show (all
pure), and `perform.py` runs it.
"""
