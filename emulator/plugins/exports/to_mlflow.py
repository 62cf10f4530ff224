"""A run as a run of MLflow: parameters, metrics over time, and files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from emulator.errors import UsageError
from emulator.plugins.exports.services import FILES, OURS, Exported, flat

PARAMETERS, METRICS = 100, 1000
"""Of a request at most, by MLflow's own limits."""
LONGEST = 6000
"""Characters of a parameter's value at most."""
_STATUS = {"succeeded": "FINISHED", "interrupted": "KILLED"}
_INVALID = re.compile(r"[^\w\-. /]")


def send(run: Exported, experiment: str) -> str:
    """Write a run to an experiment; an earlier export of the same run there is deleted.

    Raises UsageError if the server can't be reached, or refuses it.
    """
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient()
        found = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if found is None else found.experiment_id
        earlier = client.search_runs([place], filter_string=f"tags.`{OURS}` = '{run.run_id}'")
        made = client.create_run(
            place, start_time=_ms(run.began), tags=run.about, run_name=run.run_id
        )
        name = made.info.run_id
        given = [Param(_key(key), str(v)[:LONGEST]) for key, v in flat(run.config)]
        for start in range(0, len(given), PARAMETERS):
            client.log_batch(name, params=given[start : start + PARAMETERS])
        values = [Metric(*one) for one in _metrics(run)]
        for start in range(0, len(values), METRICS):
            client.log_batch(name, metrics=values[start : start + METRICS])
        for file in FILES:
            if (run.record.path / file).is_file():
                client.log_artifact(name, str(run.record.path / file))
        end = _ms(run.began + run.analysis.duration)
        client.set_terminated(name, _STATUS.get(run.analysis.outcome, "FAILED"), end)
        for one in earlier:
            client.delete_run(one.info.run_id)
    except (MlflowException, OSError) as error:
        raise UsageError(
            f"MLflow did not take the run: {' '.join(str(error).split())}",
            "MLFLOW_TRACKING_URI says where its server, or its folder, is.",
        ) from None
    replaced = ", replacing an earlier export" if earlier else ""
    return f"{len(values)} metrics for MLflow in the experiment {experiment}{replaced}"


def _metrics(run: Exported) -> Iterator[tuple[str, float, int, int]]:
    """Yield name, value, milliseconds since 1970, and step."""
    for task, found in run.moments.items():
        for moment in found:
            for tag, value in moment.scalars.items():
                yield _key(f"{task}/{tag}"), value, _ms(moment.wall), moment.step
    for key, value in run.figures.items():
        yield key, float(value), _ms(run.began + run.analysis.duration), 0


def _key(text: str) -> str:
    """Return a name that MLflow takes."""
    return _INVALID.sub("_", text)[:250]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
