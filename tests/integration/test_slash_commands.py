"""Slash commands: from a template to the prompt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.engine import ALLOW, MODEL, PLACE, Engine, open_engine
from given.subtask_engine import AGENTS
from weft.config.commands import build_commands
from weft.config.schema import CommandConfig, Config
from weft.errors import DeniedError, InvalidInputError, ModelNotFoundError, NotFoundError, UnansweredError
from weft.model.agent import AgentInfo, Command
from weft.model.event import CommandExecuted, Event
from weft.model.ids import MessageID, SessionID
from weft.model.input import CommandInput, FileInput, SessionInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import AgentPart, FilePart, SubtaskPart, TextPart
from weft.model.permission import Rule
from weft.provider.scripted import Say
from weft.tool.registry import BASH, LIST, READ, TASK

ANSWERS = [[Say(text="Done.")]] * 6


class CommandProject:
    """A project in a directory, with commands of the test."""

    def __init__(self, engine: Engine, session: SessionID, directory: Path) -> None:
        self.api = engine.api
        self.engine = engine
        self.session = session
        self.directory = directory

    async def run(self, name: str, arguments: str = "", **more: Any) -> MessageWithParts:
        return await self.api.command(self.session, CommandInput(command=name, arguments=arguments, **more))

    async def get_prompt(self) -> MessageWithParts:
        """Return the last stored prompt."""
        messages = await self.api.list_messages(self.session)
        return next(each for each in reversed(messages) if isinstance(each.info, UserMessage))

    async def get_prompt_text(self) -> str:
        parts = (await self.get_prompt()).parts
        return next(part.text for part in parts if isinstance(part, TextPart))


@asynccontextmanager
async def open_project(
    directory: Path, commands: dict[str, CommandConfig | Command], **more: Any
) -> AsyncIterator[CommandProject]:
    configured = {name: command for name, command in commands.items() if isinstance(command, CommandConfig)}
    known = build_commands(Config(command=configured), str(directory))
    known |= {name: command for name, command in commands.items() if isinstance(command, Command)}
    more.setdefault("agents", AGENTS)
    async with (
        asyncio.timeout(60),
        open_engine(
            *ANSWERS,
            place=replace(PLACE, directory=str(directory), worktree=str(directory)),
            tools=(BASH, READ, LIST, TASK),
            commands=known,
            skip_waits=True,
            **more,
        ) as engine,
    ):
        session = await engine.api.create_session(SessionInput(title="Commands"))
        yield CommandProject(engine, session.id, directory)


def configure(template: str, **more: Any) -> dict[str, CommandConfig | Command]:
    return {"go": CommandConfig(template=template, **more)}


async def test_a_command_is_a_prompt_filled_with_its_arguments(tmp_path: Path) -> None:
    async with open_project(tmp_path, configure("Fix $1 in $2.")) as project:
        answer = await project.run("go", 'bug "the loom" now')

        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.error is None
        assert await project.get_prompt_text() == "Fix bug in the loom now."


async def test_an_event_reports_an_executed_command(tmp_path: Path) -> None:
    async with open_project(tmp_path, configure("Go.")) as project:
        heard = project.api.events()
        answer = await project.run("go", "on")
        collected: list[Event] = []
        async for each in heard:
            collected.append(each.event)
            if isinstance(each.event, CommandExecuted):
                break

        assert collected[-1] == CommandExecuted(
            name="go", session_id=project.session, arguments="on", message_id=answer.info.id
        )


async def test_an_unknown_command_is_refused_with_similar_names_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    async with open_project(tmp_path, configure("Go.")) as project:
        with pytest.raises(NotFoundError, match="no command 'reviwe'") as caught:
            await project.run("reviwe")

        assert caught.value.near == ("review",)
        assert await project.api.list_messages(project.session) == []
        assert (await project.api.get_command("/go")).template == "Go."


async def test_a_wrong_agent_or_model_is_refused_before_shell_commands_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    commands = {
        "agent": CommandConfig(template=f"!`touch {marker}`", agent="nobdoy"),
        "model": CommandConfig(template=f"!`touch {marker}`", model="no/such"),
        "subtask": CommandConfig(template=f"!`touch {marker}`", model="no/such", subtask=True),
        "word": CommandConfig(template=f"!`touch {marker}`", model="nonsense"),
    }
    async with open_project(tmp_path, dict(commands)) as project:
        for name, kind in (
            ("agent", NotFoundError),
            ("model", ModelNotFoundError),
            ("subtask", ModelNotFoundError),
            ("word", InvalidInputError),
        ):
            with pytest.raises(kind):
                await project.run(name)
        assert (marker.exists(), await project.api.list_messages(project.session)) == (False, [])


# --- shell commands in templates ---


async def test_a_shell_command_is_replaced_by_its_output(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    template = "Notes:\n!`cat notes.txt`\nand !`printf 'a$1b'` of $1."
    async with open_project(tmp_path, configure(template)) as project:
        await project.run("go", "three")

        assert await project.get_prompt_text() == "Notes:\none\ntwo\nand a$1b of three."


async def test_typed_arguments_are_never_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    typed = f"!`touch {marker}` $(touch {marker}) `touch {marker}`; touch {marker}"
    async with open_project(
        tmp_path, configure('Say $ARGUMENTS and $1 and !`echo $ARGUMENTS` !`echo "$1"`')
    ) as project:
        await project.run("go", typed)

        assert typed in await project.get_prompt_text()
        assert "[not run: the arguments of a command are not inserted into" in await project.get_prompt_text()
        assert not marker.exists()


async def test_the_output_of_a_shell_command_is_plain_text(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "evil.txt").write_text(f"!`touch {marker}` $1 $ARGUMENTS @evil.txt")
    async with open_project(tmp_path, configure("!`cat evil.txt` for $1")) as project:
        await project.run("go", "me")

        assert await project.get_prompt_text() == f"!`touch {marker}` $1 $ARGUMENTS @evil.txt for me"
        assert len((await project.get_prompt()).parts) == 1
        assert not marker.exists()


async def test_a_shell_command_runs_in_the_directory_and_without_the_persons_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    async with open_project(tmp_path, configure("!`pwd; echo key=$ANTHROPIC_API_KEY.`")) as project:
        await project.run("go")

        assert await project.get_prompt_text() == f"{tmp_path}\nkey=."


async def test_a_failed_shell_command_leaves_its_error_in_the_prompt(tmp_path: Path) -> None:
    async with open_project(tmp_path, configure("Tests: !`echo red; exit 3`.")) as project:
        await project.run("go")

        assert (
            await project.get_prompt_text()
            == "Tests: red\n\n\n<bash_metadata>\nexit code 3\n</bash_metadata>."
        )


async def test_shell_commands_obey_the_rules_of_the_agent(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    denied = Rule(permission="bash", pattern="touch *", action="deny")
    careful = AgentInfo(name="careful", mode="primary", permission=(*ALLOW, denied))
    template = f"!`touch {marker}`"
    async with open_project(tmp_path, configure(template, agent="careful"), agents=(careful,)) as project:
        with pytest.raises(DeniedError):
            await project.run("go")
        assert (marker.exists(), await project.api.list_messages(project.session)) == (False, [])


async def test_without_a_user_a_shell_command_that_needs_permission_is_not_run(
    tmp_path: Path,
) -> None:
    marker = tmp_path / "ran"
    ask = Rule(permission="bash", pattern="*", action="ask")
    async with open_project(tmp_path, configure(f"!`touch {marker}`"), rules=(*ALLOW, ask)) as project:
        with pytest.raises(UnansweredError):
            await project.run("go")
        assert (marker.exists(), await project.api.list_messages(project.session)) == (False, [])


async def test_an_agent_that_may_edit_nothing_asks_before_a_shell_command_that_may_write(
    tmp_path: Path,
) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "Makefile").write_text(f"all:\n\ttouch {marker}\n")
    no_edits = Rule(permission="edit", pattern="*", action="deny")
    planner = AgentInfo(name="planner", mode="primary", permission=(*ALLOW, no_edits))
    async with open_project(tmp_path, configure("!`make`", agent="planner"), agents=(planner,)) as project:
        with pytest.raises(UnansweredError):
            await project.run("go")
        assert (marker.exists(), await project.api.list_messages(project.session)) == (False, [])


# --- mentions, attachments, agents ---


async def test_mentioned_files_and_agents_are_attached(tmp_path: Path) -> None:
    (tmp_path / "loom.md").write_text("warp and weft")
    async with open_project(tmp_path, configure("Read @loom.md, and ask @explore about @$1.")) as project:
        extra = FileInput(mime="text/plain", filename="x", url="data:text/plain,more")
        await project.run("go", "nothing.md", parts=(extra,))
        parts = (await project.get_prompt()).parts

        assert [part.filename for part in parts if isinstance(part, FilePart)] == ["loom.md", "x"]
        assert [part.name for part in parts if isinstance(part, AgentPart)] == ["explore"]
        assert any("warp and weft" in part.text for part in parts if isinstance(part, TextPart))


async def test_a_mentioned_file_outside_of_the_project_stays_text(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "secret").write_text("hunter2")
    async with open_project(tmp_path / "project", configure("Read @../secret and @$1.")) as project:
        await project.run("go", str(tmp_path / "secret"))

        assert len((await project.get_prompt()).parts) == 1


async def test_a_command_may_name_its_agent_and_model(tmp_path: Path) -> None:
    commands = configure("Go.", agent="careful", model=f"{MODEL.provider_id}/{MODEL.id}")
    careful = AgentInfo(name="careful", mode="primary", permission=ALLOW)
    async with open_project(tmp_path, commands, agents=(careful,)) as project:
        await project.run("go", agent="build")
        asked = (await project.get_prompt()).info

        assert isinstance(asked, UserMessage)
        assert asked.agent == "careful"
        assert asked.model is not None
        assert asked.model.model_id == MODEL.id


@pytest.mark.parametrize(
    ("said", "is_subtask"),
    [
        ({"subtask": True}, True),
        ({"agent": "explore"}, True),
        ({"agent": "explore", "subtask": False}, False),
        ({"agent": "build"}, False),
    ],
)
async def test_a_command_for_a_subagent_runs_in_a_child_session(
    tmp_path: Path, said: dict[str, Any], *, is_subtask: bool
) -> None:
    async with open_project(tmp_path, configure("Look at $1.", description="Look", **said)) as project:
        await project.run("go", "this")
        children = await project.api.list_children(project.session)
        prompts = [
            each
            for each in await project.api.list_messages(project.session)
            if isinstance(each.info, UserMessage)
        ]

        assert len(children) == is_subtask
        subtasks = [part for part in prompts[0].parts if isinstance(part, SubtaskPart)]
        assert [(part.prompt, part.description, part.command, part.agent) for part in subtasks] == (
            [("Look at this.", "Look", "go", said.get("agent", "build"))] if is_subtask else []
        )


# --- the built-in ones ---


async def test_initialising_a_project_is_a_command_and_is_recorded(tmp_path: Path) -> None:
    async with open_project(tmp_path, {}) as project:
        await project.run("init", "Mention the loom.")
        words = await project.get_prompt_text()

        assert (str(tmp_path) in words, words.endswith("Mention the loom.")) == (True, True)
        place = project.engine.api.runtime.place
        stored = await project.engine.store.find_project(place.project.id)
        assert stored is not None
        assert stored.time.initialized is not None


async def test_a_review_is_a_subtask_with_arguments(tmp_path: Path) -> None:
    async with open_project(tmp_path, {}) as project:
        review = await project.api.get_command("review")
        assert (review.subtask, review.hints) == (True, ("$ARGUMENTS",))
        await project.run("review", "the branch weft")
        assert len(await project.api.list_children(project.session)) == 1


async def test_a_configured_command_replaces_a_built_in_one(tmp_path: Path) -> None:
    async with open_project(tmp_path, {"review": CommandConfig(template="Mine.")}) as project:
        assert [command.name for command in await project.api.list_commands()] == ["init", "review"]
        await project.run("review")
        assert await project.get_prompt_text() == "Mine."


def test_the_name_of_a_directory_cannot_inject_into_a_template() -> None:
    for odd in ("/x/$ARGUMENTS", "/x/!`touch y`", "/x/@z"):
        assert odd not in build_commands(Config(), odd)["init"].template


async def test_a_repeated_message_is_one_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    id = MessageID("msg_1e10b972b001AbCdEfGhIjKlMn")
    async with open_project(tmp_path, configure(f"!`echo x >> {log}`Go.")) as project:
        first = await project.run("go", message_id=id)
        assert await project.run("go", message_id=id) == first
        assert log.read_text() == "x\n"
