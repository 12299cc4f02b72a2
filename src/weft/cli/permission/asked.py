"""`weft permission list` and `reply`: what agents want to be allowed, also those whose run is over."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.cli.paint import Paint, plain, write_json
from weft.cli.permission.choice import choose
from weft.cli.permission.when import ago
from weft.cli.table import to_table
from weft.config.store_address import find_own_setting, store_url
from weft.errors import InvalidInputError
from weft.host.now import now
from weft.host.paths import Paths, paths_from
from weft.local.permissions import kept_asked, name_of, open_gates_at_rest, permission_directory, person_of
from weft.local.place import list_here
from weft.local.reader import Reading
from weft.model.ids import PermissionID, SessionID
from weft.model.permission import GrantTerms
from weft.permission.grants import find_scope
from weft.permission.requests import Asked
from weft.permission.terms import Terms
from weft.store.files.layout import Layout
from weft.store.files.lock import list_abandoned

HINT = "weft permission list shows what is asked"
KEY = ("experimental", "weft", "asking", "always")


def list_asked(chosen: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    project = None if chosen.all else name_of(Reading(chosen.dir, os.environ, store=chosen.store).place())
    found = [
        asked
        for asked in kept_asked(permission_directory(paths)).read()
        if asked.answer is None and project in (None, asked.project_id)
    ]
    running = _running(paths, chosen.store)
    rows = [_to_row(asked, waiting=asked.session_id in running) for asked in found]
    if chosen.format == "json":
        write_json(rows)
    elif rows:
        paint, at = Paint(sys.stdout), now()
        cells = [
            (row["id"], row["state"], row["agent"], _wanted(row), ago(at - row["asked"])) for row in rows
        ]
        print("\n".join(to_table(("id", "run", "agent", "wants", "asked"), cells, paint)))
    return 0


def _to_row(asked: Asked, *, waiting: bool) -> dict[str, Any]:
    request = asked.permission
    said: dict[str, Any] = (
        {"permission": request.permission, "patterns": request.patterns, "always": request.always}
        if request is not None
        else {"questions": [each.question for each in (asked.question.questions if asked.question else ())]}
    )
    return {
        "id": asked.id,
        "sessionID": asked.session_id,
        "projectID": asked.project_id,
        "agent": asked.agent,
        "state": "waits" if waiting else "over",
        "asked": asked.time,
        **said,
    }


def _wanted(row: dict[str, Any]) -> str:
    if "permission" in row:
        return f"{row['permission']}: {', '.join(row['patterns'])}"
    return " ".join(row["questions"])


def _running(paths: Paths, store: str | None) -> set[str]:
    """The sessions that somebody runs right now."""
    url = store_url(os.environ, paths, store)
    if not url.startswith("file:"):
        return set()
    layout = Layout(url.removeprefix("file:"))
    try:
        leased = {name for name in os.listdir(layout.runs) if not name.endswith((".owner", "~"))}
    except OSError:
        return set()
    return leased - set(list_abandoned(layout))


def reply_to(chosen: argparse.Namespace) -> int:
    if chosen.reply != "always" and (chosen.scope or chosen.expires is not None or chosen.any_agent):
        raise InvalidInputError("reply", "only always can have a scope, an end or every agent")
    if chosen.reply != "reject" and chosen.message:
        raise InvalidInputError("--message", "goes with reject alone")
    paths = paths_from(os.environ)
    directory = permission_directory(paths)
    still = [each for each in kept_asked(directory).read() if each.answer is None]
    for each in still:
        if each.question is not None and each.id == chosen.id:
            raise InvalidInputError(
                "id",
                f"{each.id} is a question in words",
                hint=f'answer it in its session: weft run -s {each.session_id} "…"',
            )
    pending = [each for each in still if each.permission]
    here = [each.id for each in _list_here(pending, Reading(chosen.dir, os.environ, store=chosen.store))]
    id = choose("open question", chosen.id, here=here, ids=[each.id for each in pending], hint=HINT)
    asked = next(each for each in pending if each.id == id)
    asyncio.run(_reply(chosen, asked, directory, paths))
    _tell(chosen, asked)
    return 0


def _list_here(pending: list[Asked], reading: Reading) -> list[Asked]:
    """The questions of this project, without those of sessions that work in another checkout of it."""
    place = reading.place()
    own = [each for each in pending if each.project_id == name_of(place)]
    found = [reading.tree.find_session(SessionID(each.session_id)) for each in own]
    sessions = [each for each in found if each is not None]
    elsewhere = {each.id for each in sessions} - {each.id for each in list_here(sessions, place)}
    return [each for each in own if each.session_id not in elsewhere]


async def _reply(chosen: argparse.Namespace, asked: Asked, directory: str, paths: Paths) -> None:
    terms = Terms(person=person_of(os.environ), always=find_scope(find_own_setting(paths, KEY)))
    expires = None if chosen.expires is None else now() + chosen.expires
    given = GrantTerms(scope=chosen.scope, expires=expires, any_agent=chosen.any_agent)
    async with open_gates_at_rest(directory, asked.project_id, terms) as gate:
        await gate.reply(PermissionID(asked.id), chosen.reply, message=chosen.message, terms=given)


def _tell(chosen: argparse.Namespace, asked: Asked) -> None:
    paint = Paint(sys.stderr)
    wanted = plain(_wanted(_to_row(asked, waiting=False)))
    running = asked.session_id in _running(paths_from(os.environ), chosen.store)
    print(f"{paint.bold(chosen.reply)}  {wanted}", file=sys.stderr)
    if not running:
        print(f'go on with: weft run -s {asked.session_id} "go on"', file=sys.stderr)
