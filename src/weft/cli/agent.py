"""`weft agent`: list, show and create agents."""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping

from weft.cli.arguments import add_directory, add_format
from weft.cli.config import load_and_warn
from weft.cli.output import Paint, sanitize, shorten_line, to_table, write_json
from weft.config.agents import build_agents
from weft.config.check import find_nearest
from weft.errors import ConflictError, DirectoryError, InvalidInputError, NotFoundError
from weft.host.paths import paths_from
from weft.model.agent import Agent
from weft.model.catalog import parse_ref
from weft.model.permission import Ruleset
from weft.project.checkout import find_checkout

# The tools that OpenCode lists. Those that write files share one permission.
TOOLS = ("bash", "read", "write", "edit", "list", "glob", "grep", "webfetch", "task", "todowrite", "todoread")
EDITING = frozenset({"write", "edit"})
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def find_agents(directory: str, env: Mapping[str, str]) -> dict[str, Agent]:
    """Return every agent by its key, and warn about problems in the configuration."""
    at = find_checkout(directory)
    scope, loaded = load_and_warn(at.directory, at.top or at.directory, env)
    return build_agents(loaded.config, scope.paths, scope.worktree, loaded.trusted_config)


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--all", action="store_true", help="include hidden agents")
    add("--verbose", action="store_true", help="show the rules of each agent")
    add_format(parser)
    add_directory(parser)


def list_agents(chosen: argparse.Namespace) -> int:
    """List the built-in agents first, in their order, then the others."""
    found = find_agents(chosen.dir, os.environ)
    named = [(key, agent) for key, agent in found.items() if chosen.all or not agent.hidden]
    named.sort(key=lambda item: not item[1].native)
    if chosen.format == "json":
        write_json([agent for _, agent in named])
        return 0
    paint = Paint(sys.stdout)
    if chosen.verbose:
        for key, agent in named:
            print(f"{paint.bold(sanitize(key))} ({agent.mode})")
            print("\n".join(f"  {line}" for line in format_rules(agent)))
        return 0
    rows = [
        (key, agent.mode, _format_origin(agent), shorten_line(agent.description or ""))
        for key, agent in named
    ]
    print("\n".join(to_table(("agent", "mode", "from", "what it is for"), rows, paint)))
    return 0


def _format_origin(agent: Agent) -> str:
    return "weft" if agent.native else "you"


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the agent")
    add_format(parser)
    add_directory(parser)


def show_agent(chosen: argparse.Namespace) -> int:
    agents = find_agents(chosen.dir, os.environ)
    agent = agents.get(chosen.name)
    if agent is None:
        near = find_nearest(chosen.name, agents)
        raise NotFoundError(
            "agent", chosen.name, near=[near] if near else [], hint="list them: weft agent list --all"
        )
    if chosen.format == "json":
        write_json(agent)
    else:
        print("\n".join(to_lines(chosen.name, agent, Paint(sys.stdout))))
    return 0


def to_lines(key: str, agent: Agent, paint: Paint) -> Iterator[str]:
    yield paint.bold(sanitize(key))
    if agent.description:
        yield sanitize(agent.description)
    yield ""
    yield from (f"{name:<12} {sanitize(value)}" for name, value in _list_facts(agent))
    yield "rules        the last that matches decides"
    yield from (f"  {line}" for line in format_rules(agent))
    if agent.prompt:
        yield ""
        yield paint.dim(sanitize(agent.prompt))


def _list_facts(agent: Agent) -> Iterator[tuple[str, str]]:
    yield "mode", agent.mode + (", behind the scenes" if agent.hidden else "")
    if agent.model is not None:
        chain = (agent.model, *agent.fallback)
        yield "model", ", then ".join(f"{model.provider_id}/{model.model_id}" for model in chain)
    facts = {
        "temperature": agent.temperature,
        "top_p": agent.top_p,
        "steps": agent.steps,
        "color": agent.color,
    }
    yield from ((name, str(value)) for name, value in facts.items() if value is not None)
    if agent.options:
        yield "options", ", ".join(agent.options)  # by name: a value may be a secret
    yield "prompt", "its own, below" if agent.prompt else "the one for its model's family"


def format_rules(agent: Agent) -> Iterator[str]:
    yield from _format_ruleset(agent.permission)
    for limit in agent.limits:
        yield "and no more than the rules of the project, which you have not vouched for:"
        yield from _format_ruleset(limit)


def _format_ruleset(rules: Ruleset) -> Iterator[str]:
    return (f"{rule.action:<5} {sanitize(rule.permission)} {sanitize(rule.pattern)}" for rule in rules)


def add_create_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", required=True, help="the name of the agent and of its file")
    add("--description", required=True, help="what the agent is for; other agents choose it by this text")
    add(
        "--prompt",
        metavar="TEXT",
        help="its system prompt; - reads it from standard input (default: the description)",
    )
    add(
        "--mode",
        choices=("all", "primary", "subagent"),
        default="all",
        help="who may use it: you, other agents, or both (default: all)",
    )
    add("--tools", metavar="A,B", help="the tools that it may use (default: all)")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model that it uses")
    add(
        "--path",
        metavar="DIR",
        help="write to DIR/agent/NAME.md (default: .opencode in the checkout, else your configuration)",
    )
    add_directory(parser)


def create_agent(chosen: argparse.Namespace) -> int:
    """Write the file of an agent, and print only its path."""
    if NAME.fullmatch(chosen.name) is None:
        raise InvalidInputError(
            "--name", f"{chosen.name!r} is not a name", hint="use letters, digits, - and _"
        )
    if not chosen.description.strip():
        raise InvalidInputError("--description", "it is empty", hint="say what the agent is for")
    if chosen.model and parse_ref(chosen.model) is None:
        raise InvalidInputError(
            "--model", f"{chosen.model!r} does not name a model", hint="write it as provider/model"
        )
    known = find_agents(chosen.dir, os.environ).get(chosen.name)
    if known is not None and known.native:
        raise ConflictError("agent", chosen.name, "is built in", hint="choose another name")
    given = sys.stdin.read() if chosen.prompt == "-" else chosen.prompt or ""
    prompt = given.strip() or chosen.description.strip()
    front = to_front_matter(chosen.description, chosen.mode, chosen.model, list_disabled_tools(chosen.tools))
    path = os.path.join(
        os.path.abspath(chosen.path or _choose_directory(chosen.dir)), "agent", f"{chosen.name}.md"
    )
    _write(path, f"---\n{front}---\n\n{prompt}\n")
    print(path)
    return 0


def _choose_directory(directory: str) -> str:
    """Return `.opencode` of the checkout; outside of a checkout, the directory of the person's configuration."""
    at = find_checkout(directory)
    return os.path.join(at.top, ".opencode") if at.top else paths_from(os.environ).config


def list_disabled_tools(tools: str | None) -> list[str]:
    """Return the tools that `--tools` leaves out. Raise `InvalidInputError` for an unknown one."""
    if tools is None:
        return []
    wanted = {name.strip() for name in tools.split(",") if name.strip()}
    unknown = sorted(wanted - set(TOOLS))
    if unknown:
        raise InvalidInputError(
            "--tools", f"there is no {', '.join(unknown)}", hint=f"there are {', '.join(TOOLS)}"
        )
    if wanted & EDITING:
        wanted |= EDITING
    return [name for name in TOOLS if name not in wanted]


def to_front_matter(description: str, mode: str, model: str | None, off: list[str]) -> str:
    # Every JSON string is also a YAML string.
    lines = [f"description: {json.dumps(description.strip(), ensure_ascii=False)}", f"mode: {mode}"]
    if model:
        lines.append(f"model: {json.dumps(model, ensure_ascii=False)}")
    if off:
        lines += ["tools:", *(f"  {name}: false" for name in off)]
    return "".join(f"{line}\n" for line in lines)


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConflictError(
            "agent file", path, "is there already", hint="edit it, or choose another name"
        ) from None
    except OSError as error:
        raise DirectoryError(path, error.strerror or str(error)) from error
