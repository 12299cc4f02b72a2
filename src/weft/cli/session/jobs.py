"""`weft session jobs`: the commands that go on in the background for a session, in whichever process that is."""

import argparse
import os
import sys

from weft.cli.paint import Paint, write_json
from weft.cli.permission.when import ago
from weft.cli.session.read import read
from weft.cli.table import to_table
from weft.host.now import now
from weft.host.paths import paths_from
from weft.tool.shell.jobs import list_running


def show_jobs(chosen: argparse.Namespace) -> int:
    session = read(chosen.dir, chosen.store).get_session(chosen.session)
    found = list_running(paths_from(os.environ).jobs, session.id)
    if chosen.format == "json":
        write_json(found)
    elif found:
        at = now()
        rows = [(job.id, ago(at - job.started), job.description, job.command, job.output) for job in found]
        print("\n".join(to_table(("id", "started", "for", "command", "output"), rows, Paint(sys.stdout))))
    else:
        print("no jobs are running", file=sys.stderr)
    return 0
