"""Plugins: found in every source, loaded and called; and the messages about those that cannot be."""

import asyncio
import json
import os
import py_compile
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from given.plugins import Project, list_calls, open_worker, prompt, text_of
from weft.errors import BlockedError
from weft.host.clock import SystemClock
from weft.local.open import open_directory
from weft.model.ids import SessionID
from weft.plugin.chain import FaultCounter, HookChain, register_function
from weft.plugin.hooks import (
    CHAT_HEADERS,
    NO_HOOKS,
    TOOL_BEFORE,
    CallArguments,
    CallHookInput,
    ChatHeaders,
    hook,
)
from weft.plugin.loader import HookFunction
from weft.plugin.tools import tool
from weft.provider.scripted import Say, UseTool

TOLD = CallHookInput(tool="bash", session_id=SessionID("ses_x"), call_id="call_x", args={"command": "ls"})
NOW = CallArguments(args={"command": "ls"})
ADDS = """
    from weft.plugin.hooks import hook

    @hook("tool.execute.before")
    def add(told, now):
        return now.but(args={{**now.args, "by": [*now.args.get("by", []), {name!r}]}})
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


async def list_called(project: Project, **more: Any) -> list[str]:
    """Return the plugins that were called, in order."""
    async with asyncio.timeout(60), project.open(**more) as local:
        given = await local.runtime.hooks.ask(TOOL_BEFORE, TOLD, NOW)
    return list(given.args.get("by", ()))


async def test_without_plugins_there_are_no_hooks(project: Project) -> None:
    async with project.open() as local:
        assert local.runtime.hooks is NO_HOOKS
    assert project.warnings == []


async def test_plugins_are_called_in_the_order_they_are_loaded(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    custom = Project(tmp_path / "custom")
    monkeypatch.setenv("OPENCODE_CONFIG_DIR", str(custom.root))
    Project(own).write("plugins/everywhere.py", ADDS.format(name="global"))
    custom.write("plugin/named.py", ADDS.format(name="custom directory"))
    project.write("mine/entry.py", ADDS.format(name="relative"))
    project.write("mine/with_url.py", ADDS.format(name="url"))
    project.plugin("local", ADDS.format(name="project"))
    site = Project(tmp_path / "site")
    site.write("loomed_plugin.py", ADDS.format(name="module"))
    monkeypatch.syspath_prepend(str(site.root))
    project.configure(plugin=["./mine/entry.py", f"file://{project.root}/mine/with_url.py", "loomed_plugin"])

    assert await list_called(project) == [
        "global",
        "relative",
        "url",
        "module",
        "project",
        "custom directory",
    ]
    assert project.warnings == []


async def test_the_plugin_of_an_installed_package_is_found(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Project(tmp_path / "site")
    site.write("woven/__init__.py", "")
    site.write("woven/hooks.py", ADDS.format(name="woven"))
    site.write(
        "woven-1.0.dist-info/entry_points.txt",
        "[console_scripts]\nwoven = woven:main\n\n[weft.plugins]\nwoven = woven.hooks\nodd = woven.hooks:add\n",
    )
    monkeypatch.syspath_prepend(str(site.root))

    assert await list_called(project) == ["woven"]
    assert len(project.warnings) == 1
    assert "odd: an entry point of weft.plugins must name a module" in project.list_warnings()[0]

    project.warnings.clear()
    monkeypatch.setenv("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
    assert await list_called(project) == []
    assert project.warnings == []


async def test_a_package_in_the_current_directory_is_not_installed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("planted.py", ADDS.format(name="planted"))
    project.write("planted-1.0.dist-info/entry_points.txt", "[weft.plugins]\nplanted = planted\n")
    monkeypatch.syspath_prepend(str(project.root))

    assert await list_called(project, trusted=False) == []


async def test_a_program_passes_modules_and_functions(project: Project) -> None:
    @hook("tool.execute.before")
    def add_words(told: CallHookInput, now: CallArguments) -> CallArguments:
        return now.but(args={"words": now.args["words"] + " and function"})

    module = types.ModuleType("handed")

    @hook("tool.execute.before")
    def replace_words(told: CallHookInput, now: CallArguments) -> dict[str, Any]:
        return {"args": {"words": "module"}}

    @tool
    def shout(words: str) -> str:
        """Say it loudly."""
        return words.upper()

    module.first = replace_words  # type: ignore[attr-defined]
    opening = project.options([UseTool(tool="shout", input={"words": "hey"})], [Say(text="Done.")])
    async with open_directory(replace(opening, plugins=(add_words, module, shout))) as local:
        assert list_calls(await prompt(local)) == [("shout", "MODULE AND FUNCTION")]


async def test_a_disabled_plugin_is_not_loaded(project: Project) -> None:
    project.plugin("loud", "raise RuntimeError('loaded all the same')\n")
    project.plugin("quiet", ADDS.format(name="quiet"))
    project.configure(experimental={"weft": {"plugins": {"off": ["loud"]}}})

    assert await list_called(project) == ["quiet"]
    assert project.warnings == []


async def test_plugins_in_other_languages_are_skipped_with_one_warning(project: Project) -> None:
    project.plugin("mine", ADDS.format(name="mine"))
    project.write(".opencode/plugin/theirs.ts", "export const Theirs = async () => ({})\n")
    project.write(".opencode/tool/theirs.js", "export default {}\n")
    project.configure(plugin=["opencode-wakatime@1.0.0", "@scope/name", "unheardof"])

    assert await list_called(project) == ["mine"]
    (line,) = project.list_warnings()
    assert line.startswith("plugin: weft runs Python plugins only and skips these: opencode-wakatime@1.0.0")
    assert line.endswith("@scope/name, unheardof, .opencode/plugin/theirs.ts, .opencode/tool/theirs.js")


async def test_a_broken_plugin_is_reported_with_its_line_and_the_others_load(project: Project) -> None:
    project.plugin("a_syntax", "x = 1\nif True print('x')\n")
    project.plugin("b_raises", "import os\n\ndef deep():\n    raise KeyError('gone')\n\ndeep()\n")
    project.plugin(
        "c_hook", 'from weft.plugin.hooks import hook\n\n@hook("chat.parms")\ndef x(told, now): ...\n'
    )
    project.plugin("d_tool", "from weft.plugin.tools import tool\n\n@tool\ndef x(a):\n    'Do it.'\n")
    project.plugin("e_exits", "raise SystemExit(3)\n")
    project.plugin("f_null", "x = 1\0\n")
    project.plugin("g_fine", ADDS.format(name="fine"))
    project.configure(plugin=["./gone.py", "weft.nowhere", "gone.nowhere"])

    assert await list_called(project) == ["fine"]
    where = ".opencode/plugin"
    assert [line for line in project.list_warnings() if "null" not in line] == [
        "opencode.json: plugin: there is no file gone.py",
        "opencode.json: plugin: there is no module 'gone.nowhere'",
        "weft.nowhere: ModuleNotFoundError: No module named 'weft.nowhere'",
        f"{where}/a_syntax.py:2:9: is not Python: invalid syntax",
        f"{where}/b_raises.py:4: KeyError: 'gone'",
        f"{where}/c_hook.py:3: there is no hook 'chat.parms' (did you mean chat.params?)",
        f"{where}/d_tool.py:3: tool x: has no type for 'a' (write a: str)",
        f"{where}/e_exits.py:1: SystemExit: 3",
    ]
    assert sum("f_null.py" in line for line in project.list_warnings()) == 1


async def test_bytecode_beside_a_plugin_is_ignored_and_none_is_written(
    project: Project, tmp_path: Path
) -> None:
    path = project.plugin("real", ADDS.format(name="source"))
    planted = tmp_path / "planted.py"
    planted.write_text(path.read_text().replace("'source'", "'planted'"))
    cache = path.parent / "__pycache__" / f"real.{sys.implementation.cache_tag}.pyc"
    cache.parent.mkdir()
    py_compile.compile(
        str(planted), str(cache), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    before = cache.read_bytes()

    assert await list_called(project) == ["source"]
    assert cache.read_bytes() == before
    assert [each.name for each in cache.parent.iterdir()] == [cache.name]

    cache.unlink()
    cache.parent.rmdir()
    assert await list_called(project) == ["source"]
    assert not cache.parent.exists()


async def test_an_untrusted_plugin_is_not_run(project: Project, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    project.plugin("x", f"open({str(mark)!r}, 'w').close()\n")
    project.tool("y", f"open({str(mark)!r}, 'w').close()\n")
    hooks = {"tool.execute.before": [{"command": ["touch", str(mark)]}]}
    project.configure(plugin=["./z.py"], experimental={"weft": {"hooks": hooks}})
    project.write("z.py", f"open({str(mark)!r}, 'w').close()\n")

    assert await list_called(project, trusted=False) == []
    assert not mark.exists()
    (line,) = project.list_warnings()
    for held in ("plugin", "x.py", "z.py", "tool y", "hook tool.execute.before"):
        assert held in line


async def test_a_plugin_is_set_up_with_an_api(project: Project) -> None:
    project.plugin(
        "keeper",
        """
        from weft.model.input import SessionInput
        from weft.plugin.hooks import hook

        async def setup(context):
            global api
            api = context.api
            made = await api.create_session(SessionInput(title=f"In {context.directory}"))
            try:
                api.events()
            except Exception as error:
                await api.rename_session(made.id, f"{made.title}: {error}")
            assert context.worktree and context.project.id

        @hook("tool.execute.before")
        async def count(told, now):
            return {"args": {"by": [each.title for each in await api.list_sessions()]}}
        """,
    )
    (title,) = await list_called(project)
    assert title == f"In {project.root}: weft does not do this: calling events from a plugin"
    assert project.warnings == []


async def test_a_plugin_whose_setup_fails_is_not_called(project: Project) -> None:
    project.plugin("a", "def setup(context):\n    raise ValueError('no')\n" + _dedent(ADDS.format(name="a")))
    project.plugin("b", ADDS.format(name="b"))

    assert await list_called(project) == ["b"]
    assert project.list_warnings() == [
        ".opencode/plugin/a.py:2: setup: ValueError: no; its hooks are not called"
    ]


def _dedent(code: str) -> str:
    return "\n".join(line[4:] for line in code.splitlines()) + "\n"


async def test_only_hooks_that_may_block_can_block(project: Project) -> None:
    project.plugin(
        "guard",
        """
        from weft.errors import BlockedError
        from weft.plugin.hooks import hook

        @hook("tool.execute.before")
        def careful(told, now):
            if told.tool == "bash":
                raise BlockedError("no shell today")

        @hook("chat.headers")
        def too_careful(told, now):
            raise BlockedError("no headers")
        """,
    )
    async with project.open() as local:
        hooks = local.runtime.hooks
        with pytest.raises(BlockedError, match="no shell today"):
            await hooks.ask(TOOL_BEFORE, TOLD, NOW)
        now = ChatHeaders(headers={})
        assert await hooks.ask(CHAT_HEADERS, None, now) is now  # type: ignore[arg-type]
    assert project.list_warnings() == [
        ".opencode/plugin/guard.py: hook chat.headers cannot block anything; that was fault 1 of 3"
    ]


async def test_a_blocked_call_in_a_run_is_a_result_that_the_model_reads(project: Project) -> None:
    project.plugin(
        "guard",
        """
        from weft.errors import BlockedError
        from weft.plugin.hooks import hook

        @hook("tool.execute.before")
        def careful(told, now):
            if told.tool == "glob":
                raise BlockedError("look, do not search")

        @hook("chat.params")
        async def colder(told, now):
            return now.but(temperature=0.25)
        """,
    )
    async with project.open([UseTool(tool="glob", input={"pattern": "*"})], [Say(text="Done.")]) as local:
        messages = await prompt(local)

    ((tool, said),) = list_calls(messages)
    assert tool == "glob"
    assert "look, do not search" in said
    assert text_of(messages).endswith("Done.")
    assert [each.parameters.temperature for each in project.provider.requests] == [0.25, 0.25]
    assert project.warnings == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.builds(object) | st.just(NOW),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["args", "x"]), inner),
    max_leaves=6,
)


@settings(max_examples=40)
@given(ANYTHING)
def test_a_hook_may_return_anything(given: Any) -> None:
    said: list[Exception] = []

    async def ask() -> None:
        async with open_worker("any") as worker:
            voice = register_function(
                worker, HookFunction("tool.execute.before", lambda *_: given), plugin="any", seconds=10
            )
            chain = HookChain([voice], FaultCounter(said.append), SystemClock())
            found = await chain.ask(TOOL_BEFORE, TOLD, NOW)
            assert type(found) is CallArguments
            assert isinstance(found.args, dict)
            json.dumps(found.args)

    asyncio.run(ask())
    assert len(said) <= 1
