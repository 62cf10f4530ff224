"""The page of a run that goes on: the report's, fed by the run's API, with faults by button."""
