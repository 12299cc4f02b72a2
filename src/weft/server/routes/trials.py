"""weft's own HTTP routes for trials: try a prompt several times, compare, adopt, replay and bisect."""

from msgspec import Struct

from weft.errors import ConflictError, NotPermittedError
from weft.model.ids import SessionID
from weft.model.trial import (
    AdoptInput,
    BisectInput,
    BisectReport,
    CompareInput,
    Comparison,
    DiscardedWorktree,
    ReplayInput,
    ReplayReport,
    Trial,
    TrialAdoption,
    TrialInput,
)
from weft.server.route import DirectoryCall, route
from weft.server.routes.sessions import read_session_id
from weft.server.routes.weft_sessions import SESSION

NO_SHELL = "the server was started with --no-shell, so no check can run"


class TryQuery(Struct, frozen=True, kw_only=True):
    """Without `start`, the trials are created and nothing runs."""

    start: bool = True


class CompareQuery(Struct, frozen=True, kw_only=True):
    """The ids of sessions, separated by commas; a single trial stands for its group, and none for the last group."""

    session: str = ""


async def create_trials(call: DirectoryCall) -> list[Trial]:
    """Create several trials of a prompt, each in its own worktree and within one budget, and start them."""
    trials = await call.api.trials.create(call.body)
    if call.query.start:
        for trial in trials:
            api = await call.server.get_api(trial.directory)
            await api.submit(trial.session, trial.prompt)
    return trials


async def create_unchecked_trials(call: DirectoryCall) -> list[Trial]:
    """Create several trials of a prompt, without a check: this server offers no shell."""
    input: TrialInput = call.body
    if input.check:
        raise NotPermittedError(f"check: {NO_SHELL}")
    return await create_trials(call)


async def show_comparison(call: DirectoryCall) -> Comparison:
    """Compare sessions as they are now, also while they run."""
    return await call.api.trials.compare(_to_input(call))


async def compare(call: DirectoryCall) -> Comparison:
    """Compare sessions, after running a check in the worktrees of trials, and ask a judge if one is named."""
    return await call.api.trials.compare(call.body)


async def compare_unchecked(call: DirectoryCall) -> Comparison:
    """Compare sessions, and ask a judge if one is named; this server offers no shell for checks."""
    input: CompareInput = call.body
    if input.check or input.run_check:
        raise NotPermittedError(f"check: {NO_SHELL}")
    return await call.api.trials.compare(input)


async def render_comparison_page(call: DirectoryCall) -> dict[str, str]:
    """Return a comparison as a page that needs nothing else, in the field `html`."""
    from weft.page.comparison import render_comparison  # noqa: PLC0415  few requests ask for it

    return {"html": render_comparison(await call.api.trials.compare(_to_input(call))).decode()}


def _to_input(call: DirectoryCall) -> CompareInput:
    query: CompareQuery = call.query
    ids = tuple(SessionID(id) for id in query.session.split(",") if id)
    return CompareInput(sessions=ids)


async def adopt(call: DirectoryCall) -> TrialAdoption:
    """Merge a trial, or files of several, into the checkout: all or nothing."""
    input: AdoptInput = call.body
    if input.discard:
        for pick in input.picks:
            await _close_group(call, pick.session)
    return await call.api.trials.adopt(input)


async def undo_adoption(call: DirectoryCall) -> TrialAdoption:
    """Take back the last adoption."""
    return await call.api.trials.undo_adoption()


async def discard_trials(call: DirectoryCall) -> list[DiscardedWorktree]:
    """Remove the worktrees of all trials of a group."""
    id = read_session_id(call)
    await _close_group(call, id)
    return await call.api.trials.discard(id)


async def _close_group(call: DirectoryCall, session: SessionID) -> None:
    """Close the directories of a group of trials. Raise `ConflictError` if something runs in one of them."""
    compared = await call.api.trials.compare(CompareInput(sessions=(session,)))
    directories = [(await call.api.get_session(each.session)).directory for each in compared.sessions]
    for directory in directories:
        if await call.server.is_busy(directory):
            raise ConflictError("worktree", directory, "is in use", hint="end what runs in it first")
    for directory in directories:
        if directory != call.directory:
            await call.server.dispose(directory)


async def replay(call: DirectoryCall) -> ReplayReport:
    """Replay a session in a scratch worktree, and tell where it differs from the recording."""
    return await call.api.trials.replay(read_session_id(call), call.body or ReplayInput())


async def bisect(call: DirectoryCall) -> BisectReport:
    """Find the call of a session that broke a check."""
    return await call.api.trials.bisect(read_session_id(call), call.body)


COMPARE = "/weft/compare"
TRY = "/weft/try"

ROUTES = (
    route("GET", COMPARE, "weft.compare.show", show_comparison, query=CompareQuery),
    route("GET", f"{COMPARE}/page", "weft.compare.page", render_comparison_page, query=CompareQuery),
    route("POST", "/weft/adopt", "weft.adopt", adopt, takes=AdoptInput),
    route("POST", "/weft/adopt/undo", "weft.adopt.undo", undo_adoption),
    route("POST", f"{SESSION}/discard", "weft.session.discard", discard_trials),
)

SHELL_ROUTES = (
    route("POST", TRY, "weft.try", create_trials, takes=TrialInput, query=TryQuery),
    route("POST", COMPARE, "weft.compare", compare, takes=CompareInput),
    route("POST", f"{SESSION}/replay", "weft.session.replay", replay, takes=ReplayInput, optional=True),
    route("POST", f"{SESSION}/bisect", "weft.session.bisect", bisect, takes=BisectInput),
)
NO_SHELL_ROUTES = (
    route("POST", TRY, "weft.try", create_unchecked_trials, takes=TrialInput, query=TryQuery),
    route("POST", COMPARE, "weft.compare", compare_unchecked, takes=CompareInput),
)
