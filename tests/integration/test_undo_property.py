"""Property test: after any changes by an agent and a person, in any order, undo reverts the agent's work and none of the person's."""

import os
from pathlib import Path
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from given.snapshot_harness import init_repository
from given.undo_harness import Action, UndoHarness, call_bash, call_write, open_undo_harness
from weft.model.ids import MessageID

NAMES = ("a", "b", "c", "d e", "ü", "x.log")
SEEDS = range(int(os.environ.get("UNDO_SEEDS", "6")))
TURNS = 4
MOST = 3


class Event(Struct, frozen=True, kw_only=True):
    """A change of a file: by the agent in a turn, or by the person (None)."""

    name: str
    before: str | None
    after: str | None
    turn: int | None
    call: int


class World:
    """The expected files, and the history of each."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root = root
        self.random = random
        self.files: dict[str, str] = {}
        self.events: list[Event] = []
        self._written = 0
        self._calls = 0

    def change(self, name: str, after: str | None, turn: int | None) -> None:
        before = self.files.get(name)
        if before == after:
            return
        self.events.append(Event(name=name, before=before, after=after, turn=turn, call=self._calls))
        if after is None:
            del self.files[name]
        else:
            self.files[name] = after

    def new_text(self) -> str:
        self._written += 1
        return f"text {self._written}\n"

    def pick(self) -> tuple[str, str | None]:
        """Return a file and its new content; every third time, if it exists, it is removed."""
        name = self.random.choice(NAMES)
        gone = name in self.files and self.random.random() < 0.3
        return name, None if gone else self.new_text()

    # --- the two at work ---

    def change_as_person(self) -> None:
        name, after = self.pick()
        if after is None:
            (self.root / name).unlink()
        else:
            (self.root / name).write_text(after)
        self.change(name, after, None)

    def next_action(self, turn: int) -> Action:
        """Return the next action of the agent, and record it as done: nothing can prevent it."""
        self._calls += 1
        fresh = [name for name in NAMES if name not in self.files]
        if fresh and self.random.random() < 0.3:
            name, text = self.random.choice(fresh), self.new_text()
            self.change(name, text, turn)
            return call_write(self.root / name, text)
        commands = []
        for _ in range(self.random.randint(1, MOST)):
            name, after = self.pick()
            commands.append(
                f"rm '{name}'" if after is None else f"printf '%s\\n' '{after.strip()}' > '{name}'"
            )
            self.change(name, after, turn)
        return call_bash("; ".join(commands))

    # --- what undo leads to ---

    def list_files_without(self, since: int) -> dict[str, str]:
        """Return the files after undoing the agent's turns from one on, change by change: as long as a file is what the
        agent left, or what it had found, as if that change had been undone already."""
        files = dict(self.files)
        for name in NAMES:
            goal = files.pop(name, None)
            for change in self._changes(name, since)[::-1]:
                if goal == change.after:
                    goal = change.before
                elif goal != change.before:
                    break
            if goal is not None:
                files[name] = goal
        return files

    def _changes(self, name: str, since: int) -> list[Event]:
        """Return what each call of the agent did to a file."""
        calls: dict[int, Event] = {}
        for event in self.events:
            if event.name == name and event.turn is not None and event.turn >= since:
                known = calls.get(event.call)
                calls[event.call] = replace(event, before=known.before) if known else event
        return [change for change in calls.values() if change.before != change.after]

    def list_files_of_person(self) -> dict[str, str]:
        """Return the files whose text the person wrote."""
        last = {event.name: event for event in self.events if event.after is not None}
        return {
            name: text
            for name, text in self.files.items()
            if name in last and last[name].turn is None and last[name].after == text
        }

    def read_files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.root.iterdir() if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("repository", [True, False], ids=["git", "no git"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_undo_reverts_the_work_of_the_agent_and_none_of_the_person(
    tmp_path: Path, seed: int, repository: bool
) -> None:
    world = make_world(tmp_path / "loom", seed, repository=repository)
    async with open_undo_harness(world.root) as harness:
        prompts = [await take_turn(harness, world, turn) for turn in range(TURNS)]
        assert world.read_files() == world.files
        for _ in range(TURNS):
            # Back and forth between any of the turns, and forward to the end.
            turn = world.random.randrange(TURNS)
            await harness.undo(prompts[turn])
            assert world.read_files() == world.list_files_without(turn)
            assert world.list_files_of_person().items() <= world.read_files().items()
        await harness.redo()
        assert world.read_files() == world.files


def make_world(root: Path, seed: int, *, repository: bool) -> World:
    root.mkdir()
    world = World(root, Random(seed))
    for _ in NAMES:
        world.change_as_person()
    if repository:
        init_repository(root)
    world.change_as_person()
    return world


async def take_turn(harness: UndoHarness, world: World, turn: int) -> MessageID:
    """Run a few answers of the agent; the person works during and after them."""
    answers: list[list[Action]] = []
    for _ in range(world.random.randint(1, 2)):
        actions: list[Action] = []
        if world.random.random() < 0.5:
            actions.append(_draw_action_of_person(world))
        actions.append(world.next_action(turn))
        answers.append(actions)
    prompt = await harness.run_turn(*answers)
    for _ in range(world.random.randint(0, 2)):
        world.change_as_person()
    return prompt


def _draw_action_of_person(world: World) -> Action:
    """Return what the person will do, chosen now, so that the world records it in order."""
    name, after = world.pick()
    world.change(name, after, None)

    def act() -> None:
        if after is None:
            (world.root / name).unlink()
        else:
            (world.root / name).write_text(after)

    return act
