"""`weft permission grants` and `revoke`: what was allowed for longer than once."""

import argparse
import asyncio
import os
import sys

from weft.cli.paint import Paint, write_json
from weft.cli.permission.choice import choose
from weft.cli.permission.when import ago, within
from weft.cli.table import to_table
from weft.host.now import now
from weft.host.paths import paths_from
from weft.local.permissions import kept_grants, name_of, open_gates_at_rest, permission_directory, person_of
from weft.local.reader import Reading
from weft.model.ids import GrantID, ProjectID
from weft.model.permission import Grant
from weft.permission.grants import is_over
from weft.permission.terms import Terms

HINT = "weft permission grants lists them"
HEAD = ("id", "allows", "agent", "reaches", "given", "by", "until")


def list_grants(chosen: argparse.Namespace) -> int:
    project = None if chosen.all else _project(chosen)
    found = _in_force(project)
    if chosen.format == "json":
        write_json(found)
    elif found:
        at = now()
        print("\n".join(to_table(HEAD, [_to_cells(grant, at) for grant in found], Paint(sys.stdout))))
    return 0


def revoke(chosen: argparse.Namespace) -> int:
    found, project = _in_force(None), _project(chosen)
    here = [each.id for each in found if each.project_id in (None, project)]
    id = choose("grant", chosen.id, here=here, ids=[each.id for each in found], hint=HINT)
    grant = next(each for each in found if each.id == id)
    asyncio.run(_revoke(grant, grant.project_id or project))
    print(f"revoked  {grant.permission}: {', '.join(grant.patterns)}", file=sys.stderr)
    return 0


async def _revoke(grant: Grant, project: ProjectID) -> None:
    directory = permission_directory(paths_from(os.environ))
    async with open_gates_at_rest(directory, project, Terms(person=person_of(os.environ))) as gate:
        await gate.revoke(GrantID(grant.id))


def _in_force(project: ProjectID | None) -> list[Grant]:
    kept = kept_grants(permission_directory(paths_from(os.environ))).read()
    at = now()
    return [
        grant
        for grant in kept
        if not is_over(grant, at) and (project is None or grant.project_id in (None, project))
    ]


def _project(chosen: argparse.Namespace) -> ProjectID:
    return name_of(Reading(chosen.dir, os.environ, store=chosen.store).place())


def _to_cells(grant: Grant, at: int) -> tuple[str, ...]:
    return (
        grant.id,
        f"{grant.permission}: {', '.join(grant.patterns)}",
        grant.agent or "any",
        f"{grant.scope} {grant.session_id or ''}".strip(),
        ago(at - grant.created),
        grant.by,
        "you revoke it" if grant.expires is None else within(grant.expires - at),
    )
