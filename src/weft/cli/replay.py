"""`weft replay` and `weft bisect`: run a stored session again, and find the call that broke something."""

import argparse
import os
import sys

from weft.cli.arguments import add_format, add_place, add_session, parse_dollars, parse_positive
from weft.cli.compare import show_comparison
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, sanitize, shorten_line, warn, write_json
from weft.cli.prompt import parse_model, to_budget
from weft.cli.run import run_to_end
from weft.cli.session import make_reader
from weft.local.bisect import bisect_session
from weft.local.open import OpenOptions, open_directory
from weft.model.display import format_count
from weft.model.ids import SessionID
from weft.model.session import DEFAULT_CHECK_SECONDS
from weft.model.trial import BisectInput, BisectReport, BisectRun, Culprit, ReplayInput, ReplayReport
from weft.page.comparison import format_seconds

OUTPUT_LINES = 10
PROMPT_LENGTH = 300


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session(parser)
    add(
        "-m",
        "--model",
        metavar="PROVIDER/MODEL",
        help="let this model answer again, instead of the recorded answers",
    )
    add(
        "--tools",
        choices=("real", "recorded"),
        default="real",
        help="with --model: run tools again, or give calls their recorded results and end at the first call that has none",
    )
    add(
        "--from",
        dest="start",
        metavar="MESSAGE",
        help="replay from this message on, with the files as they were then",
    )
    add("--until", dest="end", metavar="MESSAGE", help="replay up to this message")
    add(
        "--expect",
        choices=("same",),
        help="exit with 1 if the replay differs from the recording, for use as a test",
    )
    add(
        "--max-cost",
        type=parse_dollars,
        metavar="USD",
        help="with --model: spend at most this much on each prompt",
    )
    add("--max-tokens", type=parse_positive, metavar="N", help="use at most N tokens on each prompt")
    add("--max-steps", type=parse_positive, metavar="N", help="stop after N answers of the model to a prompt")
    add("--max-seconds", type=parse_positive, metavar="N", help="stop a prompt after N seconds")
    add_format(parser)
    add_place(parser)
    parser.epilog = (
        "It works in a scratch worktree that is removed at the end; neither the session nor your files change.\n"
        "Times in outputs and the name of the checkout are not compared. The commands of the session run again, under the\n"
        "rules of this project: do not replay a session of somebody whom you would not let run commands here.\n"
        "  weft replay last --expect same        weft replay last --model openai/gpt-5 --tools recorded"
    )


def replay_command(args: argparse.Namespace) -> int:
    session = make_reader(args).get_session(args.session)
    input = ReplayInput(
        model=parse_model(args.model),
        start=args.start,
        end=args.end,
        tools=args.tools,
        budget=to_budget(args),
    )

    async def replay(_: object) -> int:
        async with open_directory(
            OpenOptions(directory=args.dir, env=os.environ, store=args.store, warn=warn)
        ) as api:
            report = await api.trials.replay(session.id, input)
        if args.format == "json":
            write_json(report)
        else:
            _print_replay(report)
        return ExitCode.FAILED if args.expect and report.divergence is not None else ExitCode.DONE

    return run_to_end(replay, own_process=args.own_process)


def _print_replay(report: ReplayReport) -> None:
    paint = Paint(sys.stdout)
    divergence = report.divergence
    if divergence is None:
        print(paint.green(f"the same: all {format_count(report.recorded_steps, 'step')} as recorded"))
    else:
        print(
            paint.yellow(f"differs at step {divergence.step} of {report.recorded_steps} ({divergence.what})")
        )
        for name, side in (("recorded", divergence.one), ("replayed", divergence.other)):
            print(paint.bold(f"{name}:"))
            print(
                "\n".join(f"  {line}" for line in sanitize(side).splitlines()[:OUTPUT_LINES]) or "  (nothing)"
            )
    for note in report.notes:
        print(paint.dim(f"note: {sanitize(note)}"))
    if report.session is not None:
        print(paint.dim(f"stored as session {report.session}"))
    show_comparison(report.comparison, "table", remarks=False)


# --- bisect ---


def add_bisect_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session(parser)
    add(
        "--check",
        required=True,
        metavar="COMMAND",
        help="the command that tells good files (exit code 0) from bad ones",
    )
    add(
        "--check-seconds",
        type=parse_positive,
        default=DEFAULT_CHECK_SECONDS,
        metavar="N",
        help="end a check after N seconds (default: 600); then it counts as failed",
    )
    add_format(parser)
    add_place(parser)
    parser.epilog = (
        "The files after each call are restored into a scratch worktree, which is removed at the end; yours do not change.\n"
        "exit codes: 0 found    1 not found: the check passes at the end, fails at the beginning, or is flaky\n"
        '  weft bisect last --check "make test"'
    )


def bisect_command(args: argparse.Namespace) -> int:
    session = make_reader(args).get_session(args.session)
    input = BisectInput(check=args.check, seconds=args.check_seconds)

    async def bisect(_: object) -> int:
        options = OpenOptions(directory=args.dir, env=os.environ, store=args.store, warn=warn)
        async with open_directory(options) as api:
            stored = await api.get_session(SessionID(session.id))
            report = await bisect_session(api.runtime, api.parts.sources, stored, input, on_run=_print_run)
        if args.format == "json":
            write_json(report)
        else:
            _print_bisect(report)
        return ExitCode.DONE if report.verdict == "found" else ExitCode.FAILED

    return run_to_end(bisect, own_process=args.own_process)


def _print_run(run: BisectRun) -> None:
    """Print one run of the check, for a person who waits."""
    if not sys.stderr.isatty():
        return
    where = (
        f"after step {run.step}{f' ({run.call})' if run.call else ''}"
        if run.step
        else "before the first step"
    )
    print(Paint(sys.stderr).dim(f"{where}: {run.outcome}, {format_seconds(run.ms)}"), file=sys.stderr)


def _print_bisect(report: BisectReport) -> None:
    paint = Paint(sys.stdout)
    last = report.runs[-1].step if report.runs else 0
    match report.verdict:
        case "good":
            print("nothing broke it: the check passes on the files after the last step")
        case "bad":
            print("it was broken before: the check fails on the files before the first step")
        case "flaky":
            print(f"the check is flaky: it passed and failed on the same files, those after step {last}")
        case "found":
            assert report.culprit is not None, "what was found has a culprit"
            _print_culprit(report.culprit, paint)
    if report.output:
        print(paint.bold("the check printed:"))
        tail = sanitize(report.output).strip().splitlines()[-OUTPUT_LINES:]
        print("\n".join(paint.dim(f"  {line}") for line in tail))
    if report.dirtied:
        print(
            paint.yellow(
                f"the check changes files; they were put back: {', '.join(map(sanitize, report.dirtied))}"
            )
        )
    for note in report.notes:
        print(paint.dim(f"note: {sanitize(note)}"))
    print(
        paint.dim(
            f"{format_count(len(report.runs), 'run')} for {format_count(report.changes, 'change')} in {format_count(report.steps, 'step')}"
        )
    )


def _print_culprit(culprit: Culprit, paint: Paint) -> None:
    call = " ".join(each for each in (culprit.tool, culprit.title) if each) or "an unknown call"
    print(f"{paint.red(f'step {culprit.step} broke it:')} {sanitize(call)}")
    print(f"prompt: {shorten_line(sanitize(culprit.prompt), PROMPT_LENGTH)}")
    print(paint.dim(f"{culprit.model}, message {culprit.message}"))
    print(paint.diff(sanitize(culprit.diff.rstrip("\n"))))
