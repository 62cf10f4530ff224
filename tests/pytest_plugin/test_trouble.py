"""What people write and machines do: each was once a wrong pass, a traceback or a leak."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.pytest_plugin.conftest import Suite
from tests.session.conftest import FOREVER, STEPS
from tests.terminals import Terminal

pytestmark = pytest.mark.usefixtures("default_hangup")


def test_a_property_of_ones_own_is_no_run_of_ours(suite: Suite) -> None:
    text = """
        def test_it(record_property):
            record_property("run", "x")
            record_property("run.2", 3)
        """
    done = suite.test(text, passed=1)
    assert "emulated runs" not in done.stdout.str()


def test_a_marker_runs_its_scenario_whatever_the_test_asks_for(suite: Suite) -> None:
    suite.scenario("quick", expect={"final_step": 6})
    text = """
        @pytest.mark.scenario("nowhere.yaml")
        def test_nowhere():
            pass

        @pytest.mark.scenario("quick.yaml")
        def test_fails():
            pass

        @pytest.mark.scenario("quick.yaml", {"seed": 3})
        def test_wrongly_marked(run):
            pass

        @pytest.mark.scenario("quick.yaml", sets={"seed": 3})
        def test_wrongly_marked_again(run):
            pass
        """
    done = suite.test(text, failed=1, errors=3)
    done.stdout.fnmatch_lines_random(
        [
            "There is no scenario nowhere.yaml in *",
            "final_step failed: expected at least 6, got 5",
            "*is not as it should be: @pytest.mark.scenario(path, [*], set=*",
        ]
    )
    assert "fixtures.py" not in done.stdout.str()


def test_a_run_of_another_kind_does_not_pass_for_ours(suite: Suite) -> None:
    suite.scenario("quick")
    suite.pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef run():\n    return print\n")
    text = """
        @pytest.mark.scenario("nowhere.yaml")
        def test_nowhere():
            pass

        @pytest.mark.scenario("quick.yaml", set={"expect.final_step": 6})
        def test_fails(run):
            assert run is print

        @pytest.mark.scenario("quick.yaml")
        @pytest.mark.parametrize("run", [1])
        def test_given(run):
            pass

        def test_a_run_of_ones_own(run):
            assert run is print
        """
    done = suite.test(text, "scenarios", failed=4, passed=1)
    done.stdout.fnmatch_lines(["*has replaced the emulator's*def run(run)*"] * 4)


@pytest.mark.parametrize(
    ("hook", "file", "text"),
    [
        ("pytest_itemcollected(item)", "test_it.txt", ">>> 1\n1\n"),
        ("pytest_collection_modifyitems(items)", "test_it.py", "def test_it():\n    pass\n"),
    ],
)
def test_a_marker_where_no_fixture_can_be_and_one_that_comes_too_late_are_no_pass(
    suite: Suite, hook: str, file: str, text: str
) -> None:
    suite.scenario("quick")
    each = "[item]" if "itemcollected" in hook else "items"
    suite.pytester.makeconftest(
        f"import pytest\n\ndef {hook}:\n"
        f"    for one in {each}:\n        one.add_marker(pytest.mark.scenario('quick'))\n"
    )
    (suite.path / file).write_text(text)
    suite.run(file, failed=1).stdout.fnmatch_lines(["*the marker works for test functions only*"])


def test_the_marker_of_a_module_is_not_for_its_doctests(suite: Suite) -> None:
    suite.scenario("quick")
    text = """
        pytestmark = pytest.mark.scenario("quick")

        def double(number):
            \"\"\"
            >>> double(2)
            4
            \"\"\"
            return 2 * number

        def test_it(run):
            assert run.final_step == 5
        """
    suite.test(text, "--doctest-modules", passed=2)


def test_an_interrupt_at_the_end_leaves_nothing_of_any_cluster(suite: Suite) -> None:
    """The second Ctrl-C, while the first cluster is waited for: all of them end nevertheless."""
    suite.scenario("long", script="trap '' TERM; " + FOREVER)
    text = """
        import os, signal

        def test_it(emulator):
            one, other = emulator.up("long"), emulator.up("long")
            one.wait_for(step=5), other.wait_for(step=5)
            stop = one._running.ask_to_stop

            def again():
                stop()
                os.kill(os.getpid(), signal.SIGINT)

            one._running.ask_to_stop = again
        """
    done = suite.test(text, apart=True)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert len(list(suite.runs.glob("*/plan.json"))) == 2
    assert suite.left() == 0


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGINT, 2),
        (signal.SIGTERM, 2),
        (signal.SIGTERM, 0),
    ],
)
def test_a_signal_ends_workers_and_runs(suite: Suite, number: signal.Signals, workers: int) -> None:
    """Ctrl-C goes to all processes of a terminal; who cancels a job tells its first one."""
    fifo = suite.path / "up"
    os.mkfifo(fifo)
    shell = f"echo up > {fifo}; {FOREVER}"
    seeds = list(range(workers or 1))
    suite.scenario("long", script=shell, parametrize={"seed": seeds}, timeout="5m")
    silent = subprocess.DEVNULL
    session = suite.pytester.popen(
        [*suite.pytester._getpytestargs(), f"-n{workers}", "scenarios"],
        stdin=silent,
        stdout=silent,
        stderr=silent,
        process_group=0,
    )
    # For writing too, so that it does not end between the two; and a session that ends says so.
    with os.fdopen(os.open(fifo, os.O_RDWR), "r") as pipe, ThreadPoolExecutor(1) as waiting:
        ended = waiting.submit(session.wait)
        ended.add_done_callback(lambda _: fifo.write_text("ended\n"))
        try:
            assert [pipe.readline() for _ in seeds] == ["up\n" for _ in seeds]
        finally:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGINT else os.kill)(session.pid, number)
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert suite.left() == 0


def test_a_closed_terminal_ends_a_session_and_its_clusters(suite: Suite) -> None:
    suite.scenario("long", script=FOREVER, timeout="5m")
    options = ["-o", "log_cli=true", "--log-level=DEBUG"]
    terminal = Terminal([*suite.pytester._getpytestargs(), "scenarios", *options], cwd=suite.path)
    try:
        terminal.see('"step": 5')
        terminal.hang_up()
        terminal.process.wait(60)
    finally:
        terminal.close()
    assert suite.left() == 0


@pytest.mark.parametrize("how", [["-x"], ["--maxfail=1", "-n", "2"]])
def test_a_session_that_ends_early_leaves_nothing(suite: Suite, how: list[str]) -> None:
    suite.scenario("long", script=FOREVER)
    text = """
        def test_fails(emulator):
            with emulator.up("long"):
                assert False

        def test_also(emulator):
            with emulator.up("long") as cluster:
                cluster.wait_for(step=5)
        """
    done = suite.test(text, *how)
    assert done.parseoutcomes()["failed"] == 1
    assert suite.left() == 0


def test_auto_skips_where_a_configured_docker_does_not_answer(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody.sock'}")
    monkeypatch.delenv("EMULATOR_ENGINE")
    suite.scenario("quick")
    done = suite.run("scenarios", "-rs", skipped=1)
    done.stdout.fnmatch_lines(["SKIPPED*No Docker engine answers at*nobody.sock*"])


def test_fixtures_of_a_module_and_marks_that_use_fixtures_hold_for_scenarios(suite: Suite) -> None:
    suite.scenario("quick", marks=[{"usefixtures": ["boom"]}])
    suite.scenario("other")
    suite.pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="module", autouse=True)
        def module_wide(request):
            assert request.module is None
            yield

        @pytest.fixture
        def boom():
            raise RuntimeError("was used")
        """
    )
    suite.run("scenarios", passed=1, errors=1).stdout.fnmatch_lines(["*RuntimeError: was used"])
    suite.scenario("quick", marks=[{"parametrize": ["seed", [1]]}])
    done = suite.run("scenarios/quick.yaml")
    done.stdout.fnmatch_lines(["*a scenario has no mark `parametrize`*"])


def test_a_shared_run_is_kept_where_one_of_its_tests_fails(suite: Suite) -> None:
    suite.scenario("quick", script=STEPS + "touch $EMULATOR_SHARED/here")
    text = """
        @pytest.mark.scenario("quick")
        class TestBad:
            def test_ok(self, run):
                pass

            def test_bad(self, run):
                assert run.restarts == 1

        @pytest.mark.scenario("quick")
        class TestGood:
            def test_ok(self, run):
                pass
        """
    done = suite.test(text, "--emulator-keep", passed=2, failed=1)
    (kept,) = suite.runs.glob("*/shared/here")
    done.stdout.fnmatch_lines([f"kept *emulate down {kept.parent.parent}*"])


def test_a_shared_run_that_is_tried_again_is_that_of_the_test_that_tries_it(suite: Suite) -> None:
    """The second test's timer stands while it waits; the claim is that of the class."""
    program = suite.path / "by-and-by"
    suite.scenario("late", program={"command": [str(program)]})
    suite.pytester.makeconftest(
        f"""
        import pathlib, pytest

        stopped = []

        @pytest.hookimpl(tryfirst=True)
        def pytest_timeout_cancel_timer(item):
            stopped.append(item.name)

        def pytest_runtest_teardown(item):
            program = pathlib.Path({str(program)!r})
            program.write_text("#!/bin/sh\\n")
            program.chmod(0o755)

        @pytest.fixture
        def stopped_timers():
            return stopped
        """
    )
    text = """
        import json
        from pathlib import Path
        from emulator.planning.leases import default_folder

        @pytest.mark.timeout(60)
        @pytest.mark.scenario("late", check=False)
        class TestShared:
            def test_first(self, run):
                pass

            def test_second(self, run, stopped_timers):
                assert "test_second" in stopped_timers
                claims = [json.loads(path.read_text()) for path in default_folder().glob("*.json")]
                shared = f"{Path(__file__).name}::TestShared"
                assert {claim["name"] for claim in claims} == {shared}
        """
    suite.test(text, "--emulator-keep", apart=True, errors=1, passed=1)


def test_an_engine_that_fails_at_the_end_fails_the_test_and_the_rest_is_found(suite: Suite) -> None:
    suite.scenario("long", script=FOREVER)
    text = """
        from emulator.engines.process import ProcessEngine
        from emulator.errors import EngineError

        def test_it(emulator, monkeypatch):
            def refuses(self, run_id):
                raise EngineError("It would not let go.")
            monkeypatch.setattr(ProcessEngine, "tear_down", refuses)
            with emulator.up("long") as cluster:
                cluster.wait_for(step=5)

        def test_it_is_there(emulator_out):
            assert list(emulator_out.glob("*/work"))
        """
    suite.test(text, passed=1, failed=1).stdout.fnmatch_lines(["*It would not let go.*"])
    assert not list(suite.runs.glob("*/work"))
    assert suite.left() == 0


def test_values_are_taken_as_people_write_them_or_refused_in_a_sentence(suite: Suite) -> None:
    suite.scenario("quick")
    (suite.path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    text = """
        def test_paths(emulator, tmp_path):
            program = tmp_path / "say.sh"
            program.write_text("echo '{\\"emulate\\": \\"step\\", \\"step\\": 9}'")
            sets = {"program.source": program, "program.command": ["sh", "say.sh"]}
            assert emulator.run("quick", set=sets).final_step == 9
            inline = {
                "name": "inline", "framework": "none", "cluster": {"worker": 1},
                "program": {"source": program, "command": ("sh", "say.sh")},
            }
            assert emulator.run(inline).final_step == 9
            fails = {
                **inline, "program": {"command": ["sh", "-c", "exit $EMULATOR_SEED"]},
                "expect": {"outcome": "failed"},
            }
            run = emulator.run(fails, seed=3)
            run.check()
            assert run.end.reason == "worker-0 failed with exit code 3"
            assert emulator.run("quick", set="expect.final_step=5").verdict == "ok"

        @pytest.mark.parametrize("given", ["latin.yaml", "nowhere.yaml", {"name": object()}])
        def test_refused(emulator, given):
            emulator.run(given)
        """
    done = suite.test(text, passed=1, failed=3)
    done.stdout.fnmatch_lines(
        [
            "E *Can't read *latin.yaml*",
            "E *There is no scenario nowhere.yaml in *",
            "E *A scenario can't contain*",
        ]
    )
    for not_ours in ("wanted.py", "harness.py", "Settings("):
        assert not_ours not in done.stdout.str()


def test_a_cluster_without_a_block_ends_with_its_test_and_leaves_no_socket(suite: Suite) -> None:
    suite.scenario("long", script=FOREVER)
    text = """
        def test_it(emulator):
            cluster = emulator.up("long")
            cluster.wait_for(step=5)
            assert cluster.status()["state"] == "running"

        def test_collected():
            import gc
            gc.collect()
        """
    suite.test(text, "-W", "error", apart=True, passed=2)
    assert suite.left() == 0
