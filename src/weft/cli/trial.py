"""`weft try` and `weft adopt`: try a prompt several times at once, and keep the result of one."""

import argparse
import asyncio
import os
import sys
from contextlib import ExitStack
from itertools import product

from msgspec.structs import replace

from weft.cli.arguments import add_format, add_place, parse_dollars, parse_positive
from weft.cli.compare import add_check_seconds, add_judge, show_comparison
from weft.cli.exit import ExitCode
from weft.cli.follow import StopSignals
from weft.cli.output import Paint, is_interactive, sanitize, warn, write_json
from weft.cli.prompt import join_message, parse_model, read_attachment, read_piped, to_budget
from weft.cli.run import run_to_end
from weft.cli.session import make_reader
from weft.errors import InvalidInputError, WeftError
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.local.replay import to_prompt_input
from weft.local.worktrees import read_repository
from weft.model.event import MessageUpdated
from weft.model.ids import SessionID
from weft.model.input import PromptInput, TextInput
from weft.model.message import AssistantMessage, UserMessage
from weft.model.session import DEFAULT_CHECK_SECONDS
from weft.model.trial import AdoptInput, CompareInput, Pick, Trial, TrialAdoption, TrialInput, Variant
from weft.session.revert_point import choose_message
from weft.worktree.repository import get_worktree, lock_worktree

DEFAULT_COUNT = 3
HASH_LENGTH = 12


def add_try_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("message", nargs="*", help="the prompt; piped text is appended")
    add(
        "-n",
        "--count",
        type=parse_positive,
        metavar="N",
        help="how many trials for each model and agent (default: 3, or 1 if there are several of these)",
    )
    add(
        "-m",
        "--model",
        action="append",
        default=[],
        metavar="PROVIDER/MODEL",
        help="the model to use (repeatable)",
    )
    add("--agent", action="append", default=[], help="the agent to use (repeatable)")
    add("--variant", help="the variant of the model, such as its thinking effort")
    add("-s", "--session", metavar="ID", help="continue copies of this session instead of new ones")
    add(
        "--at",
        metavar="MESSAGE",
        help="with -s: go back to before this message, with the files as they were then; without a prompt, send it again",
    )
    add("-f", "--file", action="append", default=[], metavar="PATH", help="attach this file (repeatable)")
    add(
        "--check",
        metavar="COMMAND",
        help="run this command in each worktree afterwards; exit code 0 means passed",
    )
    add_check_seconds(parser, default="600")
    add_judge(parser)
    add("--max-cost", type=parse_dollars, metavar="USD", help="spend at most this much, all trials together")
    add("--max-tokens", type=parse_positive, metavar="N", help="use at most N tokens, all trials together")
    add("--max-steps", type=parse_positive, metavar="N", help="take at most N steps, all trials together")
    add("--max-seconds", type=parse_positive, metavar="N", help="stop all trials after N seconds")
    add(
        "--discard",
        nargs="?",
        const="last",
        metavar="ID",
        help="try nothing: remove the worktrees of these trials, or of the last ones",
    )
    add("--format", choices=("table", "json", "html"), default="table", help="how to print the comparison")
    add_place(parser)
    parser.epilog = (
        "Each trial has its own worktree, which starts with your files as they are now, and all run at the same time.\n"
        "What asks for permission is refused, because several cannot ask at once: allow it in the configuration.\n"
        '  weft try -n 3 --check "make test" --max-cost 2 "make the tests pass"\n'
        '  weft try -m anthropic/claude-sonnet-4-5 -m openai/gpt-5 "…"   then: weft adopt 2 --discard'
    )


def try_command(args: argparse.Namespace) -> int:
    if args.discard is not None:
        return _discard_trials(args)
    if args.session:
        args.session = make_reader(args).get_session(args.session).id
    elif args.at:
        raise InvalidInputError("--at", "which session is it in?", hint="name it with -s")
    input = _make_input(args)
    return run_to_end(lambda stop: _try(args, input, stop), own_process=args.own_process)


def _make_input(args: argparse.Namespace) -> TrialInput:
    prompt = _make_prompt(args)
    models, agents = args.model or [None], args.agent or [None]
    return TrialInput(
        prompt=replace(prompt, variant=args.variant),
        count=args.count or (1 if len(models) * len(agents) > 1 else DEFAULT_COUNT),
        variants=tuple(
            Variant(model=parse_model(model), agent=agent) for model, agent in product(models, agents)
        ),
        session=SessionID(args.session) if args.session else None,
        at=args.at,
        budget=to_budget(args),
        check=args.check or "",
        check_seconds=args.check_seconds or DEFAULT_CHECK_SECONDS,
    )


def _make_prompt(args: argparse.Namespace) -> PromptInput:
    text = join_message(args.message, read_piped(sys.stdin))
    if text.strip():
        return PromptInput(parts=(*(read_attachment(path) for path in args.file), TextInput(text=text)))
    if not args.at:
        raise InvalidInputError(
            "prompt", "it is missing", hint='type one: weft try -n 3 "fix the failing test"'
        )
    history = make_reader(args).store.list_messages(SessionID(args.session))
    id = choose_message(history, args.at)
    message = next(each for each in history if each.info.id == id)
    if not isinstance(message.info, UserMessage):
        raise InvalidInputError(
            "--at", f"{id} is an answer", hint="name the prompt before it, or type a new prompt"
        )
    return to_prompt_input(message)


async def _try(args: argparse.Namespace, input: TrialInput, stop: StopSignals) -> int:
    options = OpenOptions(directory=args.dir, env=os.environ, store=args.store, warn=warn)
    async with open_directory(options) as api:
        judge = parse_model(args.judge)
        if judge is not None:
            await api.check_prompt(PromptInput(model=judge, parts=()))
        trials = await api.trials.create(input)
        paint = Paint(sys.stderr)
        if sys.stderr.isatty():
            for number, trial in enumerate(trials, start=1):
                print(
                    paint.dim(f"trial {number}: session {trial.session}, worktree {trial.worktree}"),
                    file=sys.stderr,
                )
            print(paint.dim("watch them from another terminal: weft compare"), file=sys.stderr)
        try:
            failures = await _run_all(args, trials)
        except asyncio.CancelledError:
            print(
                "the trials are kept as they are: weft compare shows them, weft try --discard removes them",
                file=sys.stderr,
            )
            raise
        ids = tuple(trial.session for trial in trials)
        comparison = await api.trials.compare(
            CompareInput(sessions=ids, run_check=bool(input.check), judge=judge)
        )
        show_comparison(comparison, args.format)
        if args.format == "table" and is_interactive():
            print(
                paint.dim("keep one: weft adopt 1 --discard    keep none: weft try --discard"),
                file=sys.stderr,
            )
        finished = [row for row in comparison.sessions if row.outcome == "finished"]
        code = ExitCode.DONE if finished and not failures else ExitCode.FAILED
        stop.exit_soon(code)
        return code


async def _run_all(args: argparse.Namespace, trials: list[Trial]) -> list[WeftError]:
    """Run all trials at the same time. Return the errors of those that could not run; they do not stop the others."""
    repository = await asyncio.to_thread(read_repository, args.dir, os.environ, args.store)
    failures: list[WeftError] = []

    async def run(number: int, trial: Trial) -> None:
        options = OpenOptions(directory=trial.directory, env=os.environ, store=args.store, one_shot=True)
        try:
            async with open_directory(options) as api, asyncio.TaskGroup() as tasks:
                showing = tasks.create_task(_show_progress(api, number, trial))
                try:
                    await api.prompt(trial.session, trial.prompt)
                finally:
                    showing.cancel()
        except WeftError as error:
            failures.append(error)
            print(f"{Paint(sys.stderr).red(f'trial {number}:')} {sanitize(str(error))}", file=sys.stderr)

    with ExitStack() as locks:
        for trial in trials:
            locks.enter_context(lock_worktree(repository, get_worktree(repository, trial.worktree)))
        async with asyncio.TaskGroup() as tasks:
            for number, trial in enumerate(trials, start=1):
                tasks.create_task(run(number, trial))
    return failures


async def _show_progress(api: LocalApi, number: int, trial: Trial) -> None:
    """Print a line for each step of a trial, until cancelled, if a person watches."""
    paint, steps = Paint(sys.stderr), 0
    if not sys.stderr.isatty():
        return
    async for published in api.events():
        match published.event:
            case MessageUpdated(info=AssistantMessage(session_id=trial.session) as info) if (
                info.time.completed
            ):
                steps += 1
                ended = f", {info.finish}" if info.finish not in (None, "tool-calls") else ""
                print(paint.dim(f"trial {number}: step {steps}{ended}"), file=sys.stderr)
            case _:
                pass


def _discard_trials(args: argparse.Namespace) -> int:
    id = None if args.discard == "last" else make_reader(args).get_session(args.discard).id

    async def discard(_: object) -> int:
        async with open_directory(OpenOptions(directory=args.dir, env=os.environ, store=args.store)) as api:
            found = id or (await api.trials.compare(CompareInput())).sessions[0].session
            discarded = await api.trials.discard(found)
        if args.format == "json":
            write_json(discarded)
            return ExitCode.DONE
        for each in discarded:
            kept = (
                f"; its last state is commit {each.commit[:HASH_LENGTH]} until git removes it"
                if each.commit
                else ""
            )
            print(f"discarded {each.name}{kept}")
        if not discarded:
            print("nothing to discard: the worktrees are gone already", file=sys.stderr)
        return ExitCode.DONE

    return run_to_end(discard, own_process=args.own_process)


# --- adopt ---


def add_adopt_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "picks",
        nargs="*",
        metavar="ID[:PATH]",
        help="the trial to adopt, by its id or its number in weft compare, or one file or directory of it (repeatable)",
    )
    add(
        "--commit",
        nargs="?",
        const="",
        metavar="MESSAGE",
        help="commit only what was adopted; without a message, use the title of the session",
    )
    add("--discard", action="store_true", help="afterwards remove the worktrees of all trials of that prompt")
    add("--undo", action="store_true", help="take back the last adoption; your own changes since then stay")
    add_format(parser)
    add_place(parser)
    parser.epilog = (
        "The merge is three-way, and all or nothing: if it would touch what you changed, nothing is changed.\n"
        "  weft adopt 2 --discard        weft adopt 1:src/parser.py 3:tests        weft adopt --undo"
    )


def adopt_command(args: argparse.Namespace) -> int:
    if args.undo and (args.picks or args.discard or args.commit is not None):
        raise InvalidInputError(
            "--undo", "takes back the last adoption, and nothing else", hint="leave out the rest"
        )
    if not args.undo and not args.picks:
        raise InvalidInputError("ID", "it is missing", hint="weft compare lists the trials")

    async def adopt(_: object) -> int:
        async with open_directory(
            OpenOptions(directory=args.dir, env=os.environ, store=args.store, warn=warn)
        ) as api:
            if args.undo:
                adoption = await api.trials.undo_adoption()
            else:
                adoption = await api.trials.adopt(await _make_adopt_input(args, api))
        if args.format == "json":
            write_json(adoption)
        else:
            _print_adoption(adoption, undone=args.undo)
        return ExitCode.DONE

    return run_to_end(adopt, own_process=args.own_process)


async def _find_by_number(api: LocalApi, name: str) -> str | None:
    """Return the session of a trial of the last prompt by its number, as `weft compare` shows it."""
    if not name.isdigit():
        return None
    sessions = (await api.trials.compare(CompareInput())).sessions
    if not 1 <= int(name) <= len(sessions):
        raise InvalidInputError(
            "ID", f"there is no trial {name}", hint=f"the last prompt has {len(sessions)}"
        )
    return sessions[int(name) - 1].session


async def _make_adopt_input(args: argparse.Namespace, api: LocalApi) -> AdoptInput:
    reader = make_reader(args)
    picks: dict[str, list[str]] = {}
    title = ""
    for typed in args.picks:
        name, _, path = typed.partition(":")
        session = reader.get_session(await _find_by_number(api, name) or name)
        title = title or session.title
        paths = picks.setdefault(session.id, [])
        if not path and paths:
            raise InvalidInputError(typed, "is named as a whole and by file", hint="name it once")
        paths += [path] if path else []
    message = None if args.commit is None else args.commit or title
    return AdoptInput(
        picks=tuple(Pick(session=SessionID(id), paths=tuple(paths)) for id, paths in picks.items()),
        commit=message,
        discard=args.discard,
    )


def _print_adoption(adoption: TrialAdoption, *, undone: bool) -> None:
    paint = Paint(sys.stdout)
    marks = {"added": paint.green("A"), "changed": paint.yellow("M"), "deleted": paint.red("D")}
    for file in adoption.paths:
        print(f"{marks[file.how]} {sanitize(file.path)}")
    for path in adoption.left_out:
        print(f"{paint.yellow('left out:')} {sanitize(path)} is a submodule: it has commits of its own")
    if not adoption.paths:
        print(
            "nothing to undo: the files are as they were"
            if undone
            else "nothing to adopt: it changed no file"
        )
    elif undone:
        print(paint.dim("the last adoption is undone"))
    elif adoption.commit:
        print(f"committed as {adoption.commit[:HASH_LENGTH]}")
    else:
        print(paint.dim("adopted, not committed; weft adopt --undo takes it back"))
    for each in adoption.discarded:
        print(paint.dim(f"discarded {each.name}"))
