"""The Kubernetes engine: one Pod a task, in a namespace of a cluster.

Every object is made as data by a pure function in `pod_objects.py`; this module sends them. One
watch tells what becomes of the Pods (`pods.py`), and nothing is polled. A Pod is started once: a
task that is started again has a new one, with a new disk and a new address under its old name.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.engines.base import EngineDown, Exited
from emulator.engines.kit.command_line import CommandLine, check_command, not_running
from emulator.engines.kit.recipes import reference
from emulator.errors import EngineError, EngineLost, EngineMissing, NameTaken
from emulator.faults.spec import Cordoned
from emulator.planning.context import TASK_PORT, PlanContext
from emulator.plugins.kubernetes import names, nodes, removal, rights
from emulator.plugins.kubernetes.archives import Delivery, archives, delivery
from emulator.plugins.kubernetes.connection import ApiError, ApiServer
from emulator.plugins.kubernetes.names import MAIN
from emulator.plugins.kubernetes.pod_objects import all_requests, pod_request, prepared, shown
from emulator.plugins.kubernetes.pods import Notes, Pod, PodStates
from emulator.plugins.kubernetes.refusals import cannot_start
from emulator.plugins.kubernetes.section import Kubernetes, options_of
from emulator.plugins.kubernetes.shared import Shared, decide, is_usable
from emulator.plugins.kubernetes.status import Ended, Running, Waiting, state_of
from emulator.plugins.kubernetes.watching import NEVER, Kind, Watcher
from emulator.scenario.program import SHARED

if TYPE_CHECKING:
    from emulator.engines.base import Finding, Inbox, Resource, ResumePoint
    from emulator.faults.spec import Via
    from emulator.metrics.catalog import Usage
    from emulator.planning.claims import Capacity
    from emulator.planning.plan import Plan, Task
    from emulator.plugins.kubernetes.logs import LogFollower
    from emulator.plugins.kubernetes.usage import MeasuredPod, Measurement
    from emulator.scenario.schema import AnyImage, Scenario

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL where nobody says."""
CHECKED_FOR = 5.0
"""Seconds for which a namespace that stays is not asked about again."""
_PLURALS = {
    "Service": "services",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
}
_OUR_STEPS = frozenset({names.UNPACK, names.OPEN})


@dataclass
class _Start:
    """A start of a task that is under way."""

    told: int = 0
    """The last signal for the task, as long as it has no Pod."""


@dataclass
class _Run:
    """What the engine knows of the run that it has prepared or taken over."""

    plan: Plan
    common: names.Common
    shared: Shared
    inbox: Inbox
    found: Delivery = field(default_factory=dict)
    """The ConfigMaps with the programs."""
    starts: dict[str, _Start] = field(default_factory=dict)
    """By task."""
    creating: int = 0
    """Requests for Pods that are under way."""
    is_closing: bool = False
    """Nothing is made any more: it is being removed."""


class KubernetesEngine:
    """Runs tasks as Pods."""

    name = "kubernetes"
    capabilities = frozenset(
        {"limits", "gpus", "replace", "new-address", "usage", "reattach", "pods", "scratch"}
        | {"own-grace", "eviction", "nodes", "exec", "volume-size"}
    )
    machine_needs: Mapping[str, str] = {"gpus": "gpu"}
    why_no_gpus = "tasks run on a cluster, whose GPUs are not measured"
    keeps_addresses = False
    starts_wait = True
    kill_slack = removal.KILL_SLACK

    def __init__(self) -> None:
        self.options = Kubernetes()
        self._cluster: ApiServer | None = None
        self._missing: EngineMissing | None = None
        try:
            self._cluster = ApiServer.open(self.options)
        except EngineMissing as error:
            if not error.configured:
                raise
            self._missing = error  # the scenario may name another context
        self._is_configured = False
        self._gpus_wanted = 0
        self._changes_nodes = False
        self._run: _Run | None = None
        self._watchers: list[Watcher] = []
        self._notes: Notes | None = None
        self._lock = threading.Condition()
        self._checked_at = -NEVER
        """When it was last asked whether the namespace stays."""
        self._reported: set[str] = set()
        """Unique ids of Pods whose task's end is in the inbox."""
        self.pods = PodStates()

    def configure(self, scenario: Scenario) -> None:
        """Take context and namespace of the scenario. Raises EngineMissing."""
        wanted = (role.gpus.count * role.replicas for role in scenario.cluster.values())
        self._gpus_wanted = sum(wanted)
        options = options_of(scenario)
        if self._cluster is None or options != self.options:
            cluster = ApiServer.open(options)
            self.close()
            self.options, self._cluster = options, cluster
            for cached in ("_nodes", "_shared"):
                self.__dict__.pop(cached, None)
        self._is_configured = True
        needed = (need for fault in scenario.faults for _, need in fault.needs())
        self._changes_nodes = "nodes" in needed

    @staticmethod
    def place_of(scenario: Scenario) -> Hashable:
        """Return context and namespace, as far as the scenario names them."""
        options = options_of(scenario)
        return options.context, options.namespace

    @staticmethod
    def rights(scenario: Scenario | None = None) -> str:
        """Return the Roles that a login needs in the scenario's namespace, as YAML."""
        return rights.manifest(options_of(scenario).namespace or "default")

    @property
    def cluster(self) -> ApiServer:
        """The cluster. Raises EngineMissing if the kubeconfig leads to none."""
        if self._cluster is None:
            assert self._missing is not None, "one of them is set"
            raise self._missing
        return self._cluster

    # Imported for a run: plans and lists need neither.

    @cached_property
    def _output(self) -> LogFollower:
        from emulator.plugins.kubernetes.logs import LogFollower

        return LogFollower(self.cluster)

    @cached_property
    def _measurement(self) -> Measurement:
        from emulator.plugins.kubernetes.usage import Measurement

        return Measurement(self.cluster, names.selector(self._prepared.plan.resources))

    # --- Before a run ---------------------------------------------------------------------------

    def plan_context(self, run_id: str, folder: Path) -> PlanContext:
        """Describe the engine to the plan.

        Raises Unsupported if the scenario has faults of nodes that our role does not allow.
        """
        if self._changes_nodes:
            rights.require_nodes(self.cluster)
        return PlanContext(
            engine=self.name,
            address=lambda task: (names.address(run_id, task), TASK_PORT),
            image=self._reference,
            gpus=lambda: self.capacity().gpus,
            shared=SHARED,
        )

    def _reference(self, image: AnyImage) -> str:
        """Return the reference by which nodes find an image that a scenario names."""
        return reference(image, lambda: self.capacity().gpus, self.options.registry)

    @cached_property
    def _nodes(self) -> Sequence[Mapping[str, Any]] | None:
        """The cluster's nodes; None if we may not list them."""
        return self._list_of_cluster("/api/v1/nodes")

    def _list_of_cluster(self, path: str) -> Sequence[Mapping[str, Any]] | None:
        try:
            return list(self.cluster.get(path).get("items") or ())
        except ApiError as error:
            if error.status != 403:
                raise
            return None

    @cached_property
    def _shared(self) -> Shared:
        """What /shared is. Raises Unsupported, EngineError."""
        if self.options.shared == "none":
            return decide(self.options, None, None)
        classes = self._list_of_cluster("/apis/storage.k8s.io/v1/storageclasses")
        return decide(self.options, self._nodes, classes)

    def capacity(self) -> Capacity:
        """Return what the nodes have that tasks may run on.

        More than enough if we may not list them, or if there is none: one may come, and else the
        scheduler says what is wrong with those that are there.
        """
        usable = [node for node in self._nodes or () if is_usable(node, self.options)]
        if not usable:
            return nodes.any_number(self._gpus_wanted)
        return nodes.capacity_of(usable, self.options.gpu_resource)

    def ensure_images(self, scenario: Scenario, say: Callable[[str], None]) -> None:
        """Nodes pull images themselves; say what the user should know of the run beforehand."""
        if self._shared.note:
            say(f"note: {self._shared.note}")

    def requests(self, plan: Plan, folder: Path) -> list[dict[str, Any]]:
        """Return exactly what will be sent: what a run makes first, then each Pod."""
        common = names.common(plan, folder, self.cluster.namespace)
        made = all_requests(plan, common, self.options, self._shared, archives(plan))
        return [{"request": f"create {one['kind']}", **shown(one)} for one in made]

    def inspect_commands(self, run_id: str, folder: Path) -> Iterator[str]:
        """Yield commands that list the run's Pods and show their output."""
        context = f"kubectl --context {self.cluster.context} -n {self.cluster.namespace}"
        yield f"{context} get pods -l {names.selector(run_id)} -o wide"
        for one in removal.find(self.cluster, run_id, everywhere=False):
            if one.kind == "pods":
                yield f"{context} logs {one.name} --all-containers"

    @staticmethod
    def examine(scenario: Scenario | None = None) -> Iterator[Finding]:
        """Look at the cluster, what we may do there, and what it has."""
        from emulator.plugins.kubernetes import doctor

        return doctor.examine(scenario)

    # --- A run ----------------------------------------------------------------------------------

    @property
    def _prepared(self) -> _Run:
        assert self._run is not None, "prepare comes first"
        return self._run

    def prepare(self, plan: Plan, folder: Path, inbox: Inbox) -> None:
        """Make the Service, the shared volume and the ConfigMaps, and begin to watch.

        Raises EngineError, Unsupported: NameTaken where another run has the Service.
        """
        common = names.common(plan, folder, self.cluster.namespace)
        run = _Run(plan, common, self._shared, inbox)
        made = prepared(plan, common, self.options, self._shared, archives(plan))
        run.found = delivery(one for one in made if one["kind"] == "ConfigMap")
        for one in plan.everything:  # what Pods can't have is refused before anything is made
            pod_request(plan, one, common, self.options, run.shared, run.found)
        rights.require(self.cluster)
        for request in made:
            try:
                self.cluster.post(self.cluster.namespaced(_PLURALS[request["kind"]]), request)
            except ApiError as error:
                if error.reason == "AlreadyExists" and request["kind"] == "Service":
                    # Of another run of this id, perhaps another user's.
                    raise NameTaken(error.message, error.hint) from None
                raise
        self._begin(run)

    def _begin(self, run: _Run) -> None:
        """Watch the run's Pods, and what the cluster says of them. Raises EngineError."""
        self._run = run
        self._output.report_to(run.inbox)
        selector = names.selector(run.plan.resources)
        watcher = Watcher(
            self.cluster,
            self.cluster.namespaced("pods"),
            selector,
            self._told,
            self._failed,
        )
        tasks = {names.pod(run.plan.resources, one.name): one.name for one in run.plan.everything}
        self._notes = Notes(self.cluster, tasks.get, run.inbox)
        self._notes.start()
        watcher.start()
        self._watchers.append(watcher)

    def _failed(self, error: EngineError) -> None:
        """Nothing is known of the Pods any more."""
        lost = error if isinstance(error, EngineLost) else EngineLost(error.message, error.hint)
        self.pods.fail(lost)
        self._prepared.inbox.put(EngineDown(lost))

    def start(self, task: Task, *, same_address: bool = False) -> str:
        """Make the task's Pod, and wait until its program runs; return the Pod's short id.

        The cluster may need time to find a node, and the node to pull the image.
        """
        run, asked = self._prepared, time.time()
        with self._lock:
            start = run.starts[task.name] = _Start()
        try:
            self._remove_pod(task.name)
            request = pod_request(run.plan, task, run.common, self.options, run.shared, run.found)
            # By our own clock, which another supervisor compares with its record.
            request["metadata"]["annotations"][names.ASKED] = repr(asked)
            pod = self._create(run, task, start, request)
        finally:
            with self._lock:
                del run.starts[task.name]
        if pod is None:
            run.inbox.put(Exited(task.name, time.time(), 128 + start.told))
            return ""
        self._wait_until_it_runs(run, task, pod)
        return pod.uid[:8]

    def _create(
        self, run: _Run, task: Task, start: _Start, request: Mapping[str, Any]
    ) -> Pod | None:
        """Make a Pod; None if the task was told to end before."""
        with self._creating(run, task.name):
            if start.told:
                return None
            return self.pods.created(
                task.name, self.cluster.post(self.cluster.namespaced("pods"), request)
            )

    @contextlib.contextmanager
    def _creating(self, run: _Run, task: str) -> Iterator[None]:
        """Have `tear_down` wait. Raises EngineError if it has begun."""
        with self._lock:
            if run.is_closing:
                raise EngineError(f"{task} can't start: its run is being removed.")
            run.creating += 1
        try:
            yield
        finally:
            with self._lock:
                run.creating -= 1
                self._lock.notify_all()

    def _wait_until_it_runs(self, run: _Run, task: Task, pod: Pod) -> None:
        """Follow the Pod's output as it comes; return when the program runs, or has ended.

        Raises EngineError if it can't start.
        """
        timeout, containers = self.options.start_timeout, names.containers(task)
        steps = [name for name in containers if name != MAIN]
        followed: set[str] = set()
        waited_since = 0.0

        def begun() -> list[str]:
            return [name for name in steps if name not in followed and _has_begun(pod, name)]

        def until(now: float) -> float | None:
            nonlocal waited_since
            if not waited_since or pod.is_initialising(_OUR_STEPS):
                waited_since = now
            state, late = pod.state, waited_since + timeout
            is_settled = isinstance(state, Running | Ended) or pod.is_gone or state.is_final
            return None if begun() or is_settled or now >= late else late

        while True:
            self.pods.wait(until)
            if new := begun():
                for name in new:
                    followed.add(name)
                    self._follow(containers[name], pod, name)
            elif isinstance(state := pod.state, Running | Ended):
                break
            elif pod.is_gone:
                self._report(pod, Exited(task.name, time.time(), 128 + signal.SIGKILL))
                return
            else:
                self._give_up(task, pod, state, timeout)
        if isinstance(state, Ended) and state.container in _OUR_STEPS:
            self._give_up_unpacking(task, pod, state)
        if isinstance(state, Ended) and state.never_ran:
            never = Waiting(state.reason, state.message, is_final=True)
            self._give_up(task, pod, never, timeout)
        if isinstance(state, Ended) and state.container != MAIN:
            return  # an init step has failed, which is the end of the task
        self._follow(task, pod, MAIN)

    def _give_up(self, task: Task, pod: Pod, state: Waiting, timeout: float) -> None:
        """Remove a Pod that does not start. Raises EngineError."""
        # A volume or a network that can't be had is in no status, but in the kubelet's events.
        message = state.message or (self._notes.warning(pod.uid) if self._notes else "")
        sentence = cannot_start(
            task.name, state.reason, message, None if state.is_final else timeout
        )
        removal.delete(self.cluster, _found(pod), 0)
        raise EngineError(*sentence)

    def _give_up_unpacking(self, task: Task, pod: Pod, state: Ended) -> None:
        """Remove a Pod whose program could not be put in its place. Raises EngineError."""
        said = ""
        with contextlib.suppress(EngineError):
            path = self.cluster.namespaced("pods", f"{pod.name}/log")
            said = self.cluster.text(path, container=state.container, tailLines=3).strip()
        removal.delete(self.cluster, _found(pod), 0)
        why = " ".join(said.split()) or state.message or f"exit code {state.exit_code}"
        raise EngineError(
            f"{task.name} can't start: its program could not be unpacked ({why}).",
            "Its image needs a shell, and tar or Python.",
        )

    def _follow(
        self, one: Task, pod: Pod, container: str, known: ResumePoint | None = None
    ) -> None:
        """Report the output of a container after what is known, and what follows from its end."""
        task = self._prepared.plan.task(pod.task)
        then = partial(self._step_ended, task) if one.part else self._report
        self._output.follow(one.name, pod.seen, container, known=known, then=partial(then, pod))

    def _step_ended(self, task: Task, pod: Pod, exited: Exited) -> None:
        """Report an init step that has failed: that is the end of its task."""
        if exited.exit_code != 0:
            self._report(pod, replace(exited, task=task.name))

    def _report(self, pod: Pod, exited: Exited) -> None:
        """Report the end of a task, once."""
        with self._lock:
            if pod.uid in self._reported:
                return
            self._reported.add(pod.uid)
        if pod.is_deleted:
            self._check_namespace()
        self._prepared.inbox.put(exited)

    def _check_namespace(self) -> None:
        """End the run if its namespace is being deleted: a Pod of ours was, by whomever.

        The answer to a request that makes nothing says so; to read the namespace may be forbidden.
        """
        with self._lock:
            now = time.monotonic()
            if self._prepared.is_closing or now < self._checked_at + CHECKED_FOR:
                return
            self._checked_at = now
        body = {"metadata": {"generateName": "emulator-"}}
        try:
            self.cluster.post(self.cluster.namespaced("configmaps"), body, dryRun="All")
        except ApiError as error:
            if error.status == 404 or "being terminated" in error.text:
                self._failed(error)
        except EngineError:
            pass  # the watch says it too

    def _told(self, kind: Kind, pod: Mapping[str, Any]) -> None:
        """Take what the watch says of a Pod."""
        self.pods.told(kind, pod)
        self._output.look_at(kind, pod)
        if self._notes is not None:
            self._notes.look_at(pod)

    def reattach(
        self, plan: Plan, folder: Path, inbox: Inbox, lives: Mapping[str, ResumePoint]
    ) -> dict[str, str]:
        """Find the run's Pods; read their output from where the last supervisor stopped."""
        common = names.common(plan, folder, self.cluster.namespace)
        run = _Run(plan, common, self._shared, inbox)
        made = self.cluster.get(
            self.cluster.namespaced("configmaps"), labelSelector=names.selector(plan.resources)
        )
        run.found = delivery(made.get("items") or ())
        self._begin(run)
        ids = {}
        for pod in self.pods.all():
            if pod.task not in lives or pod.is_gone:
                continue
            self.pods.adopt(pod)
            # One that waits is no start: the supervisor makes it again.
            if isinstance(pod.state, Running | Ended) and _asked_at(pod) >= lives[pod.task].since:
                ids[pod.task] = pod.uid[:8]
        for name in ids:
            self._follow(plan.task(name), self._pod(name), MAIN, lives[name])
        return ids

    def signal(self, task: str, number: int) -> None:
        """Send a signal: SIGTERM by deleting the Pod, others from inside of its container."""
        with self._lock:
            start = self._prepared.starts.get(task)
            if start is not None:
                start.told = number
        pod = self.pods.pod_of(task)
        if pod is None or pod.is_gone or isinstance(pod.state, Ended):
            return
        if isinstance(pod.state, Waiting):
            removal.delete(self.cluster, _found(pod), 0)
        elif number == signal.SIGTERM:
            if not pod.is_deleted:
                removal.preempt(self.cluster, pod, GRACE, None)
        elif number == signal.SIGKILL:
            removal.kill(self.cluster, pod)
        else:
            removal.send(self.cluster, pod, number)

    def kill(self, task: str) -> str:
        """Send SIGKILL from inside of the container; say what was done where that can't be done."""
        pod = self.pods.pod_of(task)
        if pod is not None and pod.runs:
            return removal.kill(self.cluster, pod)
        self.signal(task, signal.SIGKILL)
        return ""

    def terminate(self, task: str) -> None:
        """Send SIGTERM from inside of the container: the Pod stays."""
        pod = self.pods.pod_of(task)
        if pod is not None and pod.runs:
            removal.send(self.cluster, pod, signal.SIGTERM)

    def preempt(self, task: str, grace: float, via: Via | None) -> str:
        """Delete or evict the task's Pod, whose kubelet ends the grace period; say what was done.

        Empty if there was nothing to do.
        """
        pod = self.pods.pod_of(task)
        if pod is None or pod.is_deleted or isinstance(pod.state, Ended):
            return ""
        return removal.preempt(self.cluster, pod, grace, via)

    def command_line(
        self, plan: Plan, folder: Path, task: str, command: Sequence[str], *, terminal: bool
    ) -> CommandLine:
        """Return what runs a command in the container of a task."""
        from emulator.plugins.kubernetes.exec import kubectl_exec

        made = self.cluster.get(
            self.cluster.namespaced("pods"), labelSelector=names.selector(plan.resources)
        )
        for pod in made.get("items") or ():
            of = (pod["metadata"].get("annotations") or {}).get(names.TASK)
            if of == task and isinstance(state_of(pod, MAIN), Running):
                check_command("kubectl", "Kubernetes (kubernetes-client of Debian)")
                name = pod["metadata"]["name"]
                return CommandLine(
                    kubectl_exec(self.cluster, name, MAIN, command, terminal=terminal)
                )
        raise not_running(task, plan.run_id)

    def cordon(self, task: str) -> Cordoned:
        """Let the task's node take no new Pods; those that it has stay."""
        run = self._prepared
        pod = self.pods.pod_of(task)
        node = "" if pod is None or pod.is_gone else nodes.node_of(pod.seen)
        if not node:
            raise EngineError(f"Can't cordon the node of {task}: it is on none.")
        nodes.cordon(self.cluster, node, run.common, task)
        current = ((one.name, self.pods.pod_of(one.name)) for one in run.plan.tasks)
        pods = {name: found for name, found in current if found is not None}
        running = [name for name, found in pods.items() if found.runs]
        there = {name: found.seen for name, found in pods.items()}
        return Cordoned(node, nodes.tasks_there(there, node, running))

    def uncordon(self, task: str) -> None:
        """Let the node take Pods again that `cordon` of the same task has cordoned."""
        nodes.uncordon(self.cluster, self._prepared.plan.resources, task)

    def remove(self, task: str) -> None:
        """Remove the task's Pod, and wait until it is gone; the shared volume stays."""
        self._remove_pod(task)

    def _remove_pod(self, task: str) -> None:
        pod = self.pods.pod_of(task)
        if pod is None:
            return
        if pod.runs and not pod.is_deleted:
            with contextlib.suppress(removal.NotSent):  # deletion follows anyway
                removal.send(self.cluster, pod, signal.SIGKILL)
        if not pod.is_gone:
            removal.remove_pods(self.cluster, self.pods, [_found(pod)])
        self.pods.forget(pod)

    def _pod(self, task: str) -> Pod:
        pod = self.pods.pod_of(task)
        assert pod is not None, f"{task} has a Pod"
        return pod

    # --- Usage ----------------------------------------------------------------------------------

    def usage(self) -> Mapping[str, Usage]:
        """Return what the Pods have used, where the cluster measures it. Raises EngineError."""
        return self._measurement.usage(self._measured_pods())

    def pids(self) -> Mapping[str, Collection[int]]:
        """Processes run on other machines."""
        return {}

    def _measured_pods(self) -> dict[str, MeasuredPod]:
        from emulator.plugins.kubernetes.usage import measured_pod

        found = {}
        for task in self._prepared.plan.everything:
            pod = self.pods.pod_of(task.name)
            if pod is not None and not pod.is_gone and isinstance(state := pod.state, Running):
                found[task.name] = measured_pod(pod.seen, state.since, task.cpus, task.memory_limit)
        return found

    # --- After a run ----------------------------------------------------------------------------

    def tear_down(self, run_id: str) -> int:
        """Remove the run's Pods, all at once, then its other objects; wait until they are gone."""
        run = self._run
        if run is not None and run.plan.resources == run_id:
            with self._lock:
                run.is_closing = True
                self._lock.wait_for(lambda: not run.creating)
        nodes.uncordon(self.cluster, run_id)
        return removal.tear_down(self.cluster, run_id, everywhere=not self._is_configured)

    def find(self, run_id: str | None = None) -> list[Resource]:
        """Return every object that carries our label, in all namespaces that we may look at."""
        found = removal.find(self.cluster, run_id, everywhere=not self._is_configured)
        return [*(one.resource() for one in found), *nodes.find(self.cluster, run_id)]

    def close(self) -> None:
        """Close the connections; Pods keep running."""
        for watcher in self._watchers:
            watcher.close()
        if self._notes is not None:
            self._notes.close()
        if "_output" in self.__dict__:
            self._output.close()
        if self._cluster is not None:
            self._cluster.close()


def _found(pod: Pod) -> removal.Found:
    return removal.Found("pods", pod.seen)


def _has_begun(pod: Pod, container: str) -> bool:
    """Say whether a container runs, or has ended; one that never will has not."""
    state = pod.states.get(container)
    return isinstance(state, Running) or (isinstance(state, Ended) and state.container == container)


def _asked_at(pod: Pod) -> float:
    """Return when a supervisor asked for a Pod, in seconds since 1970; 0: nobody has said."""
    with contextlib.suppress(ValueError):
        return float((pod.seen["metadata"].get("annotations") or {}).get(names.ASKED, ""))
    return 0.0
