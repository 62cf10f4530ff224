"""What a metadata server answers: a pure function of what tasks were told, then its sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shlex
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from emulator.faults.platforms.metadata import (
    LARGEST_BODY,
    Answer,
    MetadataServer,
    Request,
    State,
    Told,
    change_of,
    seconds_to_wait,
)
from emulator.faults.platforms.notices import ACTIONS

TASKS = ["worker-0", "worker-1"]
NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
GOOGLE, AZURE = {"metadata-flavor": "Google"}, {"metadata": "true"}
EVENTS, VERSION = "/metadata/scheduledevents", {"api-version": "2020-07-01"}


def state(*platforms: str) -> State:
    return State("run-1", platforms or tuple(ACTIONS), TASKS, secret=b"of this test")


def told(platform: str, action: str, task: str = "worker-0", after: float = 30.0) -> Told:
    return Told(platform, action, task, NOW, NOW + after)


def google(one: State, path: str, task: str = "worker-0", **query: str) -> Answer:
    return one.answer(Request(task, f"/computeMetadata/v1/{path}", query, GOOGLE), NOW)


def amazon(one: State, path: str, task: str = "worker-0") -> Answer:
    return one.answer(Request(task, f"/latest/meta-data/{path}"), NOW)


def azure(one: State, task: str = "worker-0", now: float = NOW) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(
        one.answer(Request(task, EVENTS, VERSION, AZURE), now).body
    )
    return found


def curl(line: str, task: str = "worker-0", token: str = "") -> Request:
    """Return the request of a curl command, as documentation has them."""
    words = iter(shlex.split(line.replace("$TOKEN", token)))
    method, headers, body, url = "GET", {}, "", ""
    for word in words:
        if word in ("-H", "--header"):
            name, _, value = next(words).partition(":")
            headers[name.lower()] = value.strip()
        elif word == "-X":
            method = next(words)
        elif word == "-d":
            body = next(words)
        elif word.startswith("http"):
            url = word
    parts = urlsplit(url)
    assert parts.netloc in ("metadata.google.internal", "169.254.169.254")
    return Request(task, parts.path, dict(parse_qsl(parts.query)), headers, method, body)


# --- Lines from the documentation of the vendors --------------------------------------------------

TOKEN = (
    'curl -X PUT "http://169.254.169.254/latest/api/token"'
    ' -H "X-aws-ec2-metadata-token-ttl-seconds: 21600"'
)
LINES = {
    'curl "http://metadata.google.internal/computeMetadata/v1/instance/preempted"'
    ' -H "Metadata-Flavor: Google"': ("FALSE", "TRUE"),
    "curl http://metadata.google.internal/computeMetadata/v1/instance/maintenance-event"
    ' -H "Metadata-Flavor: Google"': ("NONE", "TERMINATE_ON_HOST_MAINTENANCE"),
    'curl -H "X-aws-ec2-metadata-token: $TOKEN"'
    " http://169.254.169.254/latest/meta-data/spot/instance-action": (
        "404",
        '{"action": "terminate", "time": "2023-11-14T22:15:20Z"}',
    ),
    'curl -H "X-aws-ec2-metadata-token: $TOKEN"'
    " http://169.254.169.254/latest/meta-data/spot/termination-time": (
        "404",
        "2023-11-14T22:15:20Z",
    ),
    'curl -H "X-aws-ec2-metadata-token: $TOKEN"'
    " http://169.254.169.254/latest/meta-data/events/recommendations/rebalance": (
        "404",
        '{"noticeTime": "2023-11-14T22:13:20Z"}',
    ),
    "curl http://169.254.169.254/latest/meta-data/instance-life-cycle": ("spot", "spot"),
}
NOTICES = [
    told("gce", "preempt"),
    told("gce", "terminate"),
    told("ec2", "rebalance"),
    told("ec2", "terminate", after=120.0),
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_documentation_says_it_to_the_one_that_it_concerns(line: str) -> None:
    one = state()
    token = one.answer(curl(TOKEN), NOW).body
    before, after = LINES[line]

    def said(task: str) -> str:
        own = one.answer(curl(TOKEN, task), NOW).body
        found = one.answer(curl(line, task, own), NOW)
        return found.body if found.status == 200 else str(found.status)

    assert said("worker-0") == before
    for notice in NOTICES:
        one.announce(notice)
    assert (said("worker-0"), said("worker-1")) == (after, before)
    assert token == one.answer(curl(TOKEN), NOW).body


def test_scheduled_events_as_the_documentation_asks_for_and_approves_them() -> None:
    one = state()
    asks = (
        'curl -H "Metadata: true"'
        ' "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"'
    )
    one.announce(told("azure", "preempt"))
    (event,) = json.loads(one.answer(curl(asks), NOW).body)["Events"]
    approves = (
        f'curl -H Metadata:true -X POST -d \'{{"StartRequests": [{{"EventId": '
        f'"{event["EventId"]}"}}]}}\' '
        "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
    )
    assert one.answer(curl(approves, "worker-1"), NOW) == Answer()
    (event,) = json.loads(one.answer(curl(asks), NOW).body)["Events"]
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")


# --- Google ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "preempted", "maintenance"),
    [
        ([], "FALSE", "NONE"),
        (["preempt"], "TRUE", "NONE"),
        (["maintenance"], "FALSE", "TERMINATE_ON_HOST_MAINTENANCE"),
        (["freeze"], "FALSE", "MIGRATE_ON_HOST_MAINTENANCE"),
        (["freeze", "terminate", "preempt"], "TRUE", "TERMINATE_ON_HOST_MAINTENANCE"),
    ],
)
def test_what_google_tells(actions: list[str], preempted: str, maintenance: str) -> None:
    one = state()
    for action in actions:
        one.announce(told("gce", action))
    found = [google(one, f"instance/{key}").body for key in ("preempted", "maintenance-event")]
    assert found == [preempted, maintenance]


def test_google_needs_its_header_and_refuses_what_was_forwarded() -> None:
    one, path = state(), "/computeMetadata/v1/instance/preempted"
    assert one.answer(Request("worker-0", path), NOW).status == 403
    forwarded = {**GOOGLE, "x-forwarded-for": "10.0.0.1"}
    assert one.answer(Request("worker-0", path, {}, forwarded), NOW).status == 403
    assert one.answer(Request("worker-0", path, {}, GOOGLE, "POST"), NOW).status == 405
    assert google(one, "instance/service-accounts/default/token").status == 404


def test_google_lists_folders_in_text_and_in_json() -> None:
    one = state()
    assert google(one, "").body == "instance/\nproject/\n"
    moved = google(one, "instance")
    assert (moved.status, moved.headers["Location"]) == (301, "/computeMetadata/v1/instance/")
    assert "scheduling/" in google(one, "instance/").body.split()
    whole = json.loads(google(one, "instance/", recursive="true").body)
    assert (whole["maintenanceEvent"], whole["scheduling"]["preemptible"]) == ("NONE", "TRUE")
    assert google(one, "instance/name", alt="json").body == '"worker-0"'
    ping = one.answer(Request("worker-0", "/", {}, GOOGLE), NOW)
    assert (ping.status, ping.headers["Metadata-Flavor"]) == (200, "Google")


@pytest.mark.parametrize(
    ("path", "query", "seconds"),
    [
        ("/computeMetadata/v1/instance/preempted", {}, None),
        ("/computeMetadata/v1/instance/preempted", {"wait_for_change": "false"}, None),
        ("/computeMetadata/v1/instance/preempted", {"wait_for_change": "true"}, 86400),
        (
            "/computeMetadata/v1/instance/preempted",
            {"wait_for_change": "true", "timeout_sec": "5"},
            5,
        ),
        ("/latest/meta-data/", {"wait_for_change": "true"}, None),
    ],
)
def test_how_long_google_waits(path: str, query: Mapping[str, str], seconds: float | None) -> None:
    assert seconds_to_wait(Request("worker-0", path, query)) == seconds


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "1e9"])
def test_a_wrong_time_to_wait_is_refused(given: str) -> None:
    query = {"wait_for_change": "true", "timeout_sec": given}
    with pytest.raises(ValueError, match=r"timeout_sec|convert"):
        seconds_to_wait(Request("worker-0", "/computeMetadata/v1/", query))
    request = Request("worker-0", "/computeMetadata/v1/", query, GOOGLE)
    with contextlib.closing(MetadataServer(state())) as server:
        assert server.answer(request, "").status == 400


# --- Amazon ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "keys"),
    [
        ("terminate", {"spot/instance-action", "spot/termination-time"}),
        ("stop", {"spot/instance-action", "spot/termination-time"}),
        ("hibernate", {"spot/instance-action"}),
        ("rebalance", {"events/recommendations/rebalance"}),
    ],
)
def test_what_amazon_tells(action: str, keys: set[str]) -> None:
    one = state()
    one.announce(told("ec2", action))
    every = {"spot/instance-action", "spot/termination-time", "events/recommendations/rebalance"}
    assert {key for key in every if amazon(one, key).status == 200} == keys
    lifecycle = amazon(one, "autoscaling/target-lifecycle-state").body
    assert lifecycle == ("Terminated" if action == "terminate" else "InService")


def test_the_time_is_fixed_when_the_notice_is_given() -> None:
    one = state()
    one.announce(told("ec2", "terminate", after=120.0))
    said = amazon(one, "spot/instance-action").body
    one.announce(Told("ec2", "terminate", "worker-0", NOW + 60, NOW + 180))  # after a take-over
    assert amazon(one, "spot/instance-action").body == said


@pytest.mark.parametrize(
    ("seconds", "status"), [("1", 200), ("21600", 200), ("0", 400), ("21601", 400), ("x", 400)]
)
def test_a_token_has_a_time_to_live(seconds: str, status: int) -> None:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": seconds}
    asks = Request("worker-0", "/latest/api/token", {}, headers, "PUT")
    assert state().answer(asks, NOW).status == status
    assert state().answer(Request("worker-0", asks.path, {}, {}, "PUT"), NOW).status == 400
    assert state().answer(Request("worker-0", asks.path, {}, headers), NOW).status == 405


def test_a_token_is_of_one_machine_until_it_expires() -> None:
    one = state()
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = one.answer(Request("worker-0", "/latest/api/token", {}, headers, "PUT"), NOW).body

    def status(task: str, given: str, now: float) -> int:
        shown = {"x-aws-ec2-metadata-token": given}
        return one.answer(Request(task, "/latest/meta-data/hostname", {}, shown), now).status

    assert status("worker-0", token, NOW + 59) == 200
    assert status("worker-0", token, NOW + 60) == 401
    assert status("worker-1", token, NOW) == 401
    assert status("worker-0", "no token, nor base64: \N{SNOWMAN}", NOW) == 401
    assert status("worker-0", "", NOW) == 401


def test_amazon_lists_folders_and_knows_the_machine() -> None:
    one = state()
    assert "placement/" in amazon(one, "").body.split()
    assert amazon(one, "iam/security-credentials/").status == 404
    document = one.answer(
        Request("worker-0", "/latest/dynamic/instance-identity/document"), NOW
    ).body
    assert json.loads(document)["instanceId"] == amazon(one, "instance-id").body
    forwarded = Request("worker-0", "/latest/meta-data/", {}, {"x-forwarded-for": "10.0.0.1"})
    assert one.answer(forwarded, NOW).status == 403


# --- Azure ----------------------------------------------------------------------------------------


def test_all_machines_of_a_set_see_an_event_and_whose_it_is() -> None:
    one = state()
    assert azure(one) == {"DocumentIncarnation": 1, "Events": []}
    one.announce(told("azure", "preempt", "worker-1"))
    assert azure(one) == azure(one, "worker-1")
    (event,) = azure(one)["Events"]
    assert re.fullmatch("[0-9A-F]{8}-([0-9A-F]{4}-){3}[0-9A-F]{12}", event.pop("EventId"))
    assert event == {
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": ["worker-1"],
        "NotBefore": "Tue, 14 Nov 2023 22:13:50 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def test_the_incarnation_rises_with_each_change_and_with_no_other() -> None:
    one = state()
    incarnations = [azure(one)["DocumentIncarnation"]]

    def changed() -> int:
        found = azure(one)["DocumentIncarnation"]
        incarnations.append(found)
        return int(found - incarnations[-2])

    one.announce(told("azure", "redeploy"))
    assert changed() == 1
    one.announce(told("azure", "redeploy"))
    one.announce(told("gce", "preempt"))
    assert changed() == 0
    (event,) = azure(one)["Events"]
    body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
    for rise in (1, 0):
        request = Request("worker-0", EVENTS, VERSION, AZURE, "POST", body)
        assert one.answer(request, NOW).status == 200
        assert changed() == rise
    one.withdraw("worker-0")
    assert (changed(), azure(one)["Events"]) == (1, [])
    one.withdraw("worker-0")
    assert changed() == 0


def test_an_event_begins_by_itself_when_it_is_due() -> None:
    one = state()
    one.announce(told("azure", "freeze"))
    before, after = azure(one, now=NOW + 29), azure(one, now=NOW + 30)
    statuses = [found["Events"][0]["EventStatus"] for found in (before, after)]
    assert statuses == ["Scheduled", "Started"]
    assert after["DocumentIncarnation"] == before["DocumentIncarnation"] + 1


@pytest.mark.parametrize(
    "asks",
    [
        Request("worker-0", EVENTS, VERSION),
        Request("worker-0", EVENTS, {}, AZURE),
        Request("worker-0", EVENTS, {"api-version": "latest"}, AZURE),
        Request("worker-0", EVENTS, VERSION, {**AZURE, "x-forwarded-for": "10.0.0.1"}),
        Request("worker-0", EVENTS, VERSION, AZURE, "POST", "no json"),
        Request("worker-0", EVENTS, VERSION, AZURE, "POST", '{"StartRequests": [1]}'),
        Request(
            "worker-0", EVENTS, VERSION, AZURE, "POST", '{"StartRequests": [{"EventId": "x"}]}'
        ),
    ],
)
def test_azure_refuses_bad_requests(asks: Request) -> None:
    assert state().answer(asks, NOW).status == 400


def test_azure_knows_the_machine() -> None:
    query = {**VERSION, "format": "text"}
    name = Request("worker-1", "/metadata/instance/compute/name", query, AZURE)
    assert state().answer(name, NOW).body == "worker-1"
    whole = Request("worker-1", "/metadata/instance", VERSION, AZURE)
    assert json.loads(state().answer(whole, NOW).body)["compute"]["name"] == "worker-1"


# --- Machines -------------------------------------------------------------------------------------


def test_a_machine_in_the_place_of_another_was_told_nothing() -> None:
    one = state()
    before = {task: amazon(one, "instance-id", task).body for task in TASKS}
    for platform, actions in ACTIONS.items():
        one.announce(told(platform, actions[0]))
    one.replace("worker-0")
    assert google(one, "instance/preempted").body == "FALSE"
    assert (amazon(one, "spot/instance-action").status, azure(one)["Events"]) == (404, [])
    assert amazon(one, "instance-id").body != before["worker-0"]
    assert amazon(one, "instance-id", "worker-1").body == before["worker-1"]


def test_a_platform_that_no_fault_names_is_not_there() -> None:
    one = state("ec2")
    assert google(one, "instance/preempted").status == 404
    assert one.answer(Request("worker-0", EVENTS, VERSION, AZURE), NOW).status == 404
    assert amazon(one, "hostname").status == 200
    assert state("azure").answer(Request("worker-0", "/latest/meta-data/"), NOW).status == 404


def test_who_is_no_machine_of_the_run_is_told_nothing() -> None:
    assert google(state(), "instance/preempted", task="").status == 403


def test_orders_are_checked() -> None:
    for order in ({}, {"do": "announce"}, {"do": "explode", "task": "worker-0"}):
        with pytest.raises((KeyError, ValueError)):
            change_of(order)
    one = state()
    change_of({"do": "announce", "notice": vars(told("gce", "preempt"))})(one)
    assert google(one, "instance/preempted").body == "TRUE"
    change_of({"do": "withdraw", "task": "worker-0"})(one)
    assert google(one, "instance/preempted").body == "FALSE"


# --- Sockets --------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    one = MetadataServer(state(), {"127.0.0.1": "worker-1"})
    with contextlib.closing(one):
        yield one


def ask(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    """Return status, text and etag."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )
        found = connection.getresponse()
        return found.status, found.read().decode(), found.getheader("ETag", "")


def test_a_task_is_known_by_its_port_or_by_its_address(server: MetadataServer) -> None:
    ports = [server.listen("127.0.0.1", 0, "worker-0"), server.listen("127.0.0.1", 0)]
    path = "/computeMetadata/v1/instance/name"
    assert [ask(port, path, Metadata_Flavor="Google")[1] for port in ports] == TASKS


def test_a_long_poll_is_answered_when_the_value_changes(server: MetadataServer) -> None:
    port = server.listen("127.0.0.1", 0, "worker-0")
    path = "/computeMetadata/v1/instance/preempted"
    _, text, etag = ask(port, path, Metadata_Flavor="Google")
    assert text == "FALSE"
    # Whichever comes first, the question or the notice: the value is another than that of the etag.
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            ask, port, f"{path}?wait_for_change=true&last_etag={etag}", Metadata_Flavor="Google"
        )
        server.tell(lambda one: one.announce(told("gce", "preempt")))
        _, text, new = waiting.result(60)
    assert (text, new != etag) == ("TRUE", True)
    at_once = ask(port, f"{path}?wait_for_change=true&last_etag={etag}", Metadata_Flavor="Google")
    assert at_once[1:] == ("TRUE", new)


def test_a_long_poll_ends_with_its_time_and_with_no_change_of_others(
    server: MetadataServer,
) -> None:
    port = server.listen("127.0.0.1", 0, "worker-0")
    server.tell(lambda one: one.announce(told("gce", "preempt", "worker-1")))
    path = "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=0"
    assert ask(port, path, Metadata_Flavor="Google")[:2] == (200, "FALSE")


@pytest.mark.parametrize("size", ["-1", "much", str(LARGEST_BODY + 1)])
def test_a_request_that_is_too_large_is_refused_and_nothing_hangs(
    server: MetadataServer, size: str
) -> None:
    port = server.listen("127.0.0.1", 0, "worker-0")
    assert ask(port, "/latest/meta-data/", Content_Length=size)[0] == 413
    assert ask(port, "/latest/meta-data/hostname")[:2] == (200, "worker-0")


def test_closed_it_listens_no_more(server: MetadataServer) -> None:
    port = server.listen("127.0.0.1", 0)
    server.close()
    with pytest.raises(ConnectionError):
        ask(port, "/")
    assert not [one for one in threading.enumerate() if one.name == "metadata"]
