"""Trainer's status endpoint: what a post means, what is refused, and posts of real tasks.

The expected answers are those of kubeflow/trainer 2.3.0, pkg/statusserver; the posts are those that
transformers 5.24 was seen to send.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Engine
from emulator.engines.docker import DockerEngine
from emulator.engines.memory import MemoryEngine
from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.planning.planner import make_plan
from emulator.planning.requested import RunOptions
from emulator.plugins.kubeflow.trainer import status_server
from emulator.plugins.kubeflow.trainer.status import StatusSteps
from emulator.plugins.kubeflow.trainer.status_server import Answer, Own, answer, token_of
from emulator.record.events import HelperEvent, Step
from emulator.record.reader import Record
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.session.execution import up
from tests.asked import asked
from tests.histories import SITE
from tests.plugins.kubeflow.trainer.test_trainer import converted, train_job

OWN = Own("/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/mnist/status", "s3cret")
BEARER = f"Bearer {token_of('node-0', OWN.secret)}"
NOW = "2026-08-06T10:00:00.123456+02:00"


def post(body: Any, authorization: str = BEARER, path: str = OWN.path) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return answer("POST", path, authorization, text, OWN)


def said(**status: Any) -> dict[str, Any]:
    return {"trainerStatus": {"lastUpdatedTime": NOW, **status}}


def metrics(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_the_server_needs_nothing_of_a_python_newer_than_3_8() -> None:
    program = "import datetime; del datetime.UTC; import runpy, sys; runpy.run_path(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, status_server.__file__], check=True)


def test_a_time_before_all_years_is_an_invalid_payload() -> None:
    assert post(said(lastUpdatedTime="0001-01-01T00:00:00+23:59")).code == 422


def test_a_valid_post_is_answered_with_what_was_understood_of_it() -> None:
    given = post(
        said(
            progressPercentage=29,
            estimatedRemainingSeconds=12,
            metrics=metrics(loss="0.6", current_step="7"),
            unknown=[1],
        )
    )
    status = {
        "progressPercentage": 29,
        "estimatedRemainingSeconds": 12,
        "metrics": metrics(loss="0.6", current_step="7"),
        "lastUpdatedTime": "2026-08-06T08:00:00Z",
    }
    assert given == Answer(200, {"trainerStatus": status}, "node-0", status)


@pytest.mark.parametrize("body", [{}, {"trainerStatus": None}, "null", "{} and more", {"a": 1}])
def test_a_post_without_a_status_is_no_mistake_and_says_nothing(body: Any) -> None:
    assert post(body) == Answer(200, {}, "node-0")


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", BEARER[:-1], f"{BEARER} x", BEARER.replace("node-0", "node-1"), "Basic x.y"],
)
def test_a_wrong_token_is_forbidden(authorization: str) -> None:
    given = post(said(), authorization)
    assert (given.code, given.task, given.status) == (403, "", None)
    assert given.body["reason"] == given.body["message"] == "Forbidden"


def test_the_scheme_of_the_token_may_be_written_in_any_case() -> None:
    assert post(said(), BEARER.replace("Bearer ", "  bEARER   ")).code == 200


def test_the_token_of_a_job_is_for_no_other_and_other_paths_are_unknown() -> None:
    assert post(said(), path=OWN.path.replace("mnist", "other")).code == 403
    assert post(said(), path="/healthz").code == 404
    assert post(said(), path=f"{OWN.path}/x").code == 404
    assert answer("GET", OWN.path, BEARER, "", OWN).code == 404


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        {"trainerStatus": []},
        said(progressPercentage="7"),
        said(progressPercentage=7.5),
        said(progressPercentage=True),
        said(progressPercentage=2**31),
        said(metrics={}),
        said(metrics=[{"name": "loss", "value": 0.5}]),
        said(lastUpdatedTime="yesterday"),
        said(lastUpdatedTime="2026-13-06T10:00:00Z"),
        '{"trainerStatus": {"progressPercentage": NaN}}',
        "[" * 100_000,
    ],
    ids=lambda body: str(body)[:60],
)
def test_what_is_not_of_the_types_of_the_api_is_an_invalid_payload(body: Any) -> None:
    given = post(body)
    assert (given.code, given.body["message"]) == (422, "Invalid payload")
    assert (given.task, given.status) == ("node-0", None)


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"progressPercentage": 101}, "progressPercentage"),
        ({"progressPercentage": -1}, "progressPercentage"),
        ({"estimatedRemainingSeconds": -1}, "estimatedRemainingSeconds"),
        ({"metrics": metrics(loss="0") * 257}, "metrics"),
        ({"metrics": metrics(loss="")}, "metrics[0].value"),
        ({"metrics": metrics(**{"a" * 65: "1"})}, "metrics[0].name"),
        ({"lastUpdatedTime": None}, "lastUpdatedTime is required"),
    ],
    ids=str,
)
def test_what_the_schema_of_a_job_does_not_allow_is_invalid(status: Any, field: str) -> None:
    given = post(said(**status))
    assert (given.code, given.body["reason"], given.status) == (422, "Invalid", None)
    assert given.body["message"].startswith('TrainJob.trainer.kubeflow.org "mnist" is invalid')
    assert field in given.body["message"]


# --- What a post means ----------------------------------------------------------------------------


def line(wall: float, task: str = "node-0", **status: Any) -> str:
    return json.dumps({"emulate": "trainer-status", "task": task, "wall": wall, "status": status})


def test_a_metric_that_is_the_step_makes_a_step_and_a_percentage_makes_none() -> None:
    steps, starts = StatusSteps(), {"node-0": [1.0], "node-1": [1.0]}
    begun = line(2, progressPercentage=0, metrics=metrics(total_steps="24"))
    assert steps.read(begun, starts) is None
    values = metrics(loss="0.6", eval_accuracy="0.9", current_step="7", total_steps="24", note="x")
    under_way = line(3, progressPercentage=29, estimatedRemainingSeconds=12, metrics=values)
    found = steps.read(under_way, starts)
    assert found is not None
    assert (found.task, found.wall, found.seen.event) == ("node-0", 3.0, "step")
    assert found.seen.data == {
        "step": 7,
        "loss": 0.6,
        "eval_accuracy": 0.9,
        "accuracy": 0.9,
        "total_steps": 24,
        "progress_percentage": 29,
        "estimated_remaining_seconds": 12,
    }
    # At its end a program posts 100, also one that has ended before its last step.
    done = steps.read(line(4, progressPercentage=100, metrics=metrics(train_loss="0.8")), starts)
    assert done is not None
    assert done.seen.data == {"step": 7, "train_loss": 0.8, "progress_percentage": 100}
    assert steps.read(line(4, "node-1", progressPercentage=50), starts) is None


@pytest.mark.parametrize("step", ["7.0", "-1", "seven", "", "9" * 19, "\u0667"])
def test_what_is_no_whole_number_is_no_step(step: str) -> None:
    assert StatusSteps().read(line(2, metrics=metrics(current_step=step)), {"node-0": [1]}) is None


def test_a_task_that_has_started_again_has_no_step_of_its_earlier_start() -> None:
    steps = StatusSteps()
    first, second = {"node-0": [1.0]}, {"node-0": [1.0, 5.0]}
    assert steps.read(line(2, metrics=metrics(step="7")), first) is not None
    assert steps.read(line(4, metrics=metrics(step="9")), second) is None  # read late
    assert steps.read(line(6, progressPercentage=3), second) is None
    again = steps.read(line(7, metrics=metrics(global_step="2")), second)
    assert again is not None
    assert again.seen.data == {"step": 2}


@pytest.mark.parametrize("text", ["", "{", "x", '{"emulate": "trainer-status"}', line(2, "other")])
def test_other_lines_have_no_step(text: str) -> None:
    assert StatusSteps().read(text, {"node-0": [1.0]}) is None


# --- In a plan ------------------------------------------------------------------------------------

JOB = """\
name: posts
framework: none
image: none
program: {command: [python3, a.py], env: {KUBEFLOW_TRAINER_SERVER_URL: mine}}
cluster: {worker: 2, data: {before: training}}
metrics: {trainer_status: true}
"""


def test_the_tasks_of_the_training_are_told_of_the_endpoint() -> None:
    plan = make_plan(parse(JOB), "test-1", SITE)
    (server,) = plan.helpers
    url = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/posts/status"
    assert server.name == "trainer-status"
    assert server.command[2:] == (server.host, str(server.port), url)
    folder = f"{SITE.shared}/.trainer-status"
    told = {name: text for name, text in plan.task("worker-1").env.items() if "TRAINER_" in name}
    assert told == {
        "KUBEFLOW_TRAINER_SERVER_URL": f"https://{server.host}:{server.port}{url}",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{folder}/ca.crt",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{folder}/worker-1/token",
    }
    assert plan.task("data-0").env["KUBEFLOW_TRAINER_SERVER_URL"] == "mine"
    assert make_plan(parse(JOB), "test-1", SITE) == plan  # what is secret is made later


def test_an_engine_that_has_no_files_for_tasks_refuses_it() -> None:
    with pytest.raises(Unsupported, match="status endpoint"):
        require(parse(JOB), MemoryEngine(ManualClock()))


def test_a_job_that_has_reported_in_a_cluster_can_do_so_here() -> None:
    status = {"trainerStatus": {"progressPercentage": 7, "lastUpdatedTime": NOW}}
    made = converted({**train_job(), "status": {"conditions": [], **status}})
    assert made.scenario["metrics"] == {"trainer_status": True}
    assert "status.trainerStatus" in str(made.notes)
    others: list[dict[str, Any]] = [{}, {"conditions": []}, {"trainerStatus": None}]
    for status in others:
        assert "metrics" not in converted({**train_job(), "status": status}).scenario


# --- On engines -----------------------------------------------------------------------------------

CLIENT = """
import json, os, ssl, time, urllib.error, urllib.request
from datetime import datetime, timezone

env = os.environ
url, ca = env["KUBEFLOW_TRAINER_SERVER_URL"], env["KUBEFLOW_TRAINER_SERVER_CA_CERT"]
with open(env["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    token = file.read()
trusting = ssl.create_default_context(cafile=ca)

def post(data, token=token, context=trusting):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return json.load(error)["code"]
    except urllib.error.URLError as error:
        return type(error.reason).__name__

def status(**fields):
    now = datetime.now(timezone.utc).isoformat()
    return json.dumps({"trainerStatus": {"lastUpdatedTime": now, **fields}}).encode()

def step(number):
    values = {"current_step": str(number), "loss": str(1 / number)}
    listed = [{"name": name, "value": value} for name, value in values.items()]
    return post(status(progressPercentage=number * 10, metrics=listed))

mark = os.path.join(env["EMULATOR_SHARED"], "ran-" + env["EMULATOR_TASK"])
is_first = not os.path.exists(mark)
open(mark, "w").close()
answers = [post(status(progressPercentage=0)), step(1), step(2)]
if env["EMULATOR_TASK"] == "worker-1" and is_first:
    while True:  # triggers count once all tasks run, which the engine may say later
        step(2)
        time.sleep(0.1)
answers += [post(b"{"), post(status(progressPercentage=101)), post(b" " * 2**17)]
answers += [post(status(), token="x"), post(status(), context=ssl.create_default_context())]
answers += [step(3), post(status(progressPercentage=100))]
print("answers", json.dumps(answers), flush=True)
"""
SCENARIO = """\
name: posts
framework: none
image: {image}
program: {{source: client.py, command: [python3, client.py]}}
cluster: {{worker: 2}}
success: all-workers
restart: on-failure
metrics: {{trainer_status: true}}
faults: [{{kill: worker-1, at: {{step: 2, task: worker-1}}}}]
expect: {{final_step: 3, max_restarts: 1}}
timeout: 4m
"""


def test_a_program_posts_its_steps_and_mistakes_are_refused(
    either_engine: tuple[str, str], tmp_path: Path
) -> None:
    name, image = either_engine
    (tmp_path / "client.py").write_text(CLIENT)
    engine: Engine = DockerEngine() if name == "docker" else ProcessEngine()
    out = tmp_path / "runs"
    result = up(asked(SCENARIO.format(image=image), tmp_path), engine, RunOptions(out=out))
    assert result.exit_code == 0, result.verdicts
    record = Record(result.folder)
    told = [200, 200, 200, 422, 422, 413, 403, "SSLCertVerificationError", 200, 200]
    for task, made in {"worker-0": [1, 2, 3], "worker-1": [1, 2, 1, 2, 3]}.items():
        assert record.log(task)[-1] == f"answers {json.dumps(told)}"
        steps = [one for one in record.history if isinstance(one, Step) and one.task == task]
        assert [step for step, _ in groupby(one.step for one in steps)] == made
        assert steps[-1].values["progress_percentage"] == 100
    ends = [one for one in record.history if isinstance(one, HelperEvent) and one.stage == "ended"]
    assert [one.told_to_stop for one in ends] == [True]
