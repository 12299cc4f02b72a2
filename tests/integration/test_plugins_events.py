"""The `event` and `config` hooks: which events plugins receive, and how they change the configuration."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.plugins import Project, open_worker, prompt
from weft.bus import Bus
from weft.host.clock import SystemClock
from weft.local.plugin_host import apply_changes, drain_listeners, make_plugin_listeners
from weft.model.event import FileEdited
from weft.plugin.chain import FaultCounter, HookChain, register_function
from weft.plugin.hooks import Happened
from weft.plugin.loader import HookFunction
from weft.provider.scripted import Say


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


WRITES_EVENTS = """
    from weft.plugin.hooks import hook

    @hook("event")
    {how} hear(told, now):
        with open({path!r}, "a") as file:
            print(told.event.type, file=file)
"""


@pytest.mark.parametrize("how", ["def", "async def"])
async def test_a_plugin_receives_every_event_until_the_end(
    project: Project, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "received"
    project.plugin("writes_events", WRITES_EVENTS.format(how=how, path=str(path)))
    async with asyncio.timeout(60), project.open([Say(text="Done.")]) as local:
        events = local.events()
        await prompt(local)
        published = [(await anext(events)).event.type for _ in range(4)]

    received = path.read_text().split()
    assert received[:4] == published
    assert received[0] == "session.created"
    assert received[-1] == "session.idle"
    assert project.warnings == []


async def test_an_event_hook_that_raises_is_disabled_and_the_turn_continues(project: Project) -> None:
    project.plugin(
        "raises",
        "from weft.plugin.hooks import hook\n\n@hook('event')\ndef hear(told, now):\n    raise ValueError(1)\n",
    )
    async with asyncio.timeout(60), project.open([Say(text="Done.")]) as local:
        events = local.events()
        await prompt(local)
        failures = []
        async for published in events:
            if published.event.type == "session.error":
                failures.append(published.event)
            if published.event.type == "session.error" and len(failures) == 3:
                break

    assert len(project.warnings) == 3
    assert project.list_warnings()[2].endswith("after 3 faults its hooks are no longer called")
    assert str(project.warnings[2]) in str(failures[2])


async def test_a_slow_event_hook_misses_events_and_a_warning_says_so() -> None:
    bus, warnings, received = Bus(size=4), [], []
    go, begun, outside = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

    def record_slowly(told: Happened, now: object) -> None:
        outside.call_soon_threadsafe(begun.set)
        go.wait()
        assert isinstance(told.event, FileEdited)
        received.append(told.event.file)

    async with asyncio.timeout(60), open_worker("slow") as worker:
        hook = register_function(worker, HookFunction("event", record_slowly), plugin="slow.py", seconds=10)
        faults = FaultCounter(warnings.append)
        chain = HookChain([hook], faults, SystemClock())
        (listener,) = make_plugin_listeners(chain, bus)
        listening = asyncio.ensure_future(listener.listen(chain, faults))
        bus.publish(FileEdited(file="first"), directory="/")
        await begun.wait()
        bus.publish(*(FileEdited(file=str(number)) for number in range(9)), directory="/")
        go.set()
        await listener.catch_up()
        bus.publish(FileEdited(file="last"), directory="/")
        await drain_listeners([listener])
        listening.cancel()

    assert received == ["first", "last"]
    assert [str(each) for each in warnings] == ["slow.py: hook event is too slow and has missed some events"]


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "release"
    yield path
    path.touch()


async def test_closing_does_not_wait_for_a_plugin_that_hangs(project: Project, release: Path) -> None:
    project.plugin(
        "hangs",
        "import os, time\nfrom weft.plugin.hooks import hook\n\n@hook('event')\ndef hear(told, now):\n"
        f"    while not os.path.exists({str(release)!r}):\n        time.sleep(0.01)\n",
    )
    async with asyncio.timeout(60), project.open([Say(text="Done.")]) as local:
        await prompt(local)
    assert release.name not in os.listdir(release.parent)


async def test_the_config_hook_runs_before_the_configuration_is_used(project: Project) -> None:
    project.plugin(
        "config",
        """
        from weft.plugin.hooks import hook

        @hook("config")
        def add(told, now):
            agent = {"description": f"In {told.directory}", "prompt": "Weave.", "mode": "primary"}
            config = {**now.config, "agent": {**now.config.get("agent", {}), "weaver": agent}}
            return now.but(config={**config, "default_agent": "weaver", "modle": "x/y", "share": 3})
        """,
    )
    async with project.open() as local:
        assert local.runtime.default_agent == "weaver"
        assert local.runtime.agents["weaver"].prompt == "Weave."
    assert project.list_warnings() == [
        'config hook: share: expected "auto", "disabled" or "manual", found a number',
        "config hook: modle: unknown key, ignored",
    ]


async def test_a_config_hook_does_not_make_untrusted_settings_effective(project: Project) -> None:
    own = Project(Path(os.environ["XDG_CONFIG_HOME"]) / "opencode")
    own.write("opencode.json", json.dumps({"permission": {"bash": "ask"}}))
    own.write(
        "plugin/own.py",
        "from weft.plugin.hooks import hook\n\n@hook('config')\ndef add(told, now):\n"
        "    return {'config': {**now.config, 'permission': {**now.config['permission'], 'read': 'deny'}}}\n",
    )
    project.configure(permission={"bash": "allow"})
    async with project.open(trusted=False) as local:
        build = local.runtime.agents["build"]
        rules = {(rule.permission, rule.pattern): rule.action for rule in build.permission}

    assert rules["bash", "*"] == "ask"
    assert rules["read", "*"] == "deny"


def test_only_the_changed_keys_are_applied_to_another_configuration() -> None:
    before = {"a": 1, "b": {"c": 1, "d": 2}, "gone": 1, "same": {"x": 1}}
    after = {"a": 1, "b": {"c": 1, "d": 3}, "same": {"x": 1}, "new": {"y": 1}}

    assert apply_changes({"b": {"c": 9}, "gone": 1}, before, after) == {
        "b": {"c": 9, "d": 3},
        "new": {"y": 1},
    }
    assert apply_changes({}, before, after) == {"b": {"d": 3}, "new": {"y": 1}}
