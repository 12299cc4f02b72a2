"""The system prompt, layer by layer."""

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from weft.model.agent import Agent
from weft.model.message import UserMessage
from weft.model.place import Place


@cache
def _core() -> str:
    return files("weft.window").joinpath("prompts/core.md").read_text(encoding="utf-8").strip()


def system_prompt(
    agent: Agent, prompt: UserMessage, place: Place, *, platform: str, now: int
) -> tuple[str, ...]:
    """What the agent is told before the conversation: who it is, where it stands, what this prompt adds."""
    layers = [agent.prompt or _core(), environment(place, platform=platform, now=now), prompt.system or ""]
    return ("\n".join(layer for layer in layers if layer),)


def environment(place: Place, *, platform: str, now: int) -> str:
    today = datetime.fromtimestamp(now / 1000, UTC)
    return "\n".join(
        (
            "This is where you work:",
            "<env>",
            f"  Working directory: {place.directory}",
            f"  Is directory a git repo: {'yes' if place.project.vcs == 'git' else 'no'}",
            f"  Platform: {platform}",
            f"  Today's date: {today:%a %b %d %Y}",
            "</env>",
        )
    )
