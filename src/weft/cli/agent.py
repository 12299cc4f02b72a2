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
from weft.model.agent import AgentInfo
from weft.model.catalog import parse_ref
from weft.model.permission import Ruleset
from weft.project.checkout import find_checkout

# The tools that OpenCode lists. Those that write files share one permission.
TOOLS = ("bash", "read", "write", "edit", "list", "glob", "grep", "webfetch", "task", "todowrite", "todoread")
EDIT_TOOLS = frozenset({"write", "edit"})
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def load_agents(directory: str, env: Mapping[str, str]) -> dict[str, AgentInfo]:
    """Return every agent by its key, and warn about problems in the configuration."""
    checkout = find_checkout(directory)
    scope, loaded = load_and_warn(checkout.directory, checkout.top or checkout.directory, env)
    return build_agents(loaded.config, scope.paths, scope.worktree, loaded.trusted_config)


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--all", action="store_true", help="include hidden agents")
    add("--verbose", action="store_true", help="show the rules of each agent")
    add_format(parser)
    add_directory(parser)


def list_agents(args: argparse.Namespace) -> int:
    """List the built-in agents first, in their order, then the others."""
    agents = load_agents(args.dir, os.environ)
    listed = [(key, agent) for key, agent in agents.items() if args.all or not agent.hidden]
    listed.sort(key=lambda item: not item[1].native)
    if args.format == "json":
        write_json([agent for _, agent in listed])
        return 0
    paint = Paint(sys.stdout)
    if args.verbose:
        for key, agent in listed:
            print(f"{paint.bold(sanitize(key))} ({agent.mode})")
            print("\n".join(f"  {line}" for line in format_rules(agent)))
        return 0
    rows = [
        (key, agent.mode, "weft" if agent.native else "you", shorten_line(agent.description or ""))
        for key, agent in listed
    ]
    print("\n".join(to_table(("agent", "mode", "from", "what it is for"), rows, paint)))
    return 0


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the agent")
    add_format(parser)
    add_directory(parser)


def show_agent(args: argparse.Namespace) -> int:
    agents = load_agents(args.dir, os.environ)
    agent = agents.get(args.name)
    if agent is None:
        near = find_nearest(args.name, agents)
        raise NotFoundError(
            "agent", args.name, near=[near] if near else [], hint="list them: weft agent list --all"
        )
    if args.format == "json":
        write_json(agent)
    else:
        print("\n".join(to_lines(args.name, agent, Paint(sys.stdout))))
    return 0


def to_lines(key: str, agent: AgentInfo, paint: Paint) -> Iterator[str]:
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


def _list_facts(agent: AgentInfo) -> Iterator[tuple[str, str]]:
    yield "mode", agent.mode + (", hidden" if agent.hidden else "")
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


def format_rules(agent: AgentInfo) -> Iterator[str]:
    yield from _format_ruleset(agent.permission)
    for limit in agent.limits:
        yield "and no more than the rules of the project allow, because you have not trusted it:"
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


def create_agent(args: argparse.Namespace) -> int:
    """Write the file of an agent, and print only its path."""
    if AGENT_NAME.fullmatch(args.name) is None:
        raise InvalidInputError("--name", f"{args.name!r} is not a name", hint="use letters, digits, - and _")
    if not args.description.strip():
        raise InvalidInputError("--description", "it is empty", hint="say what the agent is for")
    if args.model and parse_ref(args.model) is None:
        raise InvalidInputError(
            "--model", f"{args.model!r} does not name a model", hint="write it as provider/model"
        )
    existing = load_agents(args.dir, os.environ).get(args.name)
    if existing is not None and existing.native:
        raise ConflictError("agent", args.name, "is built in", hint="choose another name")
    text = sys.stdin.read() if args.prompt == "-" else args.prompt or ""
    prompt = text.strip() or args.description.strip()
    front = to_front_matter(args.description, args.mode, args.model, list_disabled_tools(args.tools))
    path = os.path.join(os.path.abspath(args.path or _choose_directory(args.dir)), "agent", f"{args.name}.md")
    _write(path, f"---\n{front}---\n\n{prompt}\n")
    print(path)
    return 0


def _choose_directory(directory: str) -> str:
    """Return `.opencode` of the checkout; outside of a checkout, the directory of the person's configuration."""
    checkout = find_checkout(directory)
    return os.path.join(checkout.top, ".opencode") if checkout.top else paths_from(os.environ).config


def list_disabled_tools(tools: str | None) -> list[str]:
    """Return the tools that `--tools` leaves out. Raise `InvalidInputError` for an unknown one."""
    if tools is None:
        return []
    enabled = {name.strip() for name in tools.split(",") if name.strip()}
    unknown = sorted(enabled - set(TOOLS))
    if unknown:
        raise InvalidInputError(
            "--tools", f"there is no {', '.join(unknown)}", hint=f"there are {', '.join(TOOLS)}"
        )
    if enabled & EDIT_TOOLS:
        enabled |= EDIT_TOOLS
    return [name for name in TOOLS if name not in enabled]


def to_front_matter(description: str, mode: str, model: str | None, disabled: list[str]) -> str:
    # Every JSON string is also a YAML string.
    lines = [f"description: {json.dumps(description.strip(), ensure_ascii=False)}", f"mode: {mode}"]
    if model:
        lines.append(f"model: {json.dumps(model, ensure_ascii=False)}")
    if disabled:
        lines += ["tools:", *(f"  {name}: false" for name in disabled)]
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
        raise DirectoryError(
            path, error.strerror or str(error), hint="name a directory that you may write to with --path"
        ) from error
