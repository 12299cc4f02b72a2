"""What the doctor says of the logs of decisions: whether each is as it was written."""

import os

from weft.errors import WeftError
from weft.local.permissions import list_logs, permission_directory
from weft.maintenance.environment import Case
from weft.maintenance.findings import Finding, Item
from weft.permission.audit import find_break

AREA = "permissions"


def examine_logs(case: Case) -> list[Finding]:
    items: list[Item] = []
    for files in list_logs(permission_directory(case.paths)):
        try:
            _, broken = find_break(files)
        except (OSError, WeftError) as error:
            items.append(Item(where=files.path, reason=str(error)))
            continue
        if broken is not None:
            where = f"{os.path.basename(broken.file)}:{broken.line}"
            items.append(Item(where=where, reason=f"record {broken.seq} {broken.reason}"))
    if not items:
        return []
    return [
        Finding(
            severity="problem",
            area=AREA,
            what="a log of decisions is not as it was written",
            means="somebody changed it, or the disk did: what it says of that time proves nothing",
            repair="keep a copy if it matters; weft permission log --verify checks the log of a project",
            items=tuple(items),
        )
    ]
