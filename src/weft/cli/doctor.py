"""`weft doctor`: report what is wrong with the machine, the configuration and the store, and fix it."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from weft.cli.arguments import add_format, add_place
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, sanitize, write_json
from weft.config.store_address import resolve_storage_root
from weft.errors import WeftError
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.local.permissions import list_decision_logs, permission_directory
from weft.local.sandbox import examine_sandbox
from weft.maintenance.doctor import examine
from weft.maintenance.environment import DoctorInput
from weft.maintenance.findings import DoctorFinding, FindingItem
from weft.maintenance.repair import FindingRepairer, RepairResult
from weft.permission.audit import find_break

LOG_AREA = "permissions"


def examine_logs(case: DoctorInput) -> list[DoctorFinding]:
    """Check that no audit log of permissions was changed after it was written."""
    items: list[FindingItem] = []
    for files in list_decision_logs(permission_directory(case.paths)):
        try:
            _, broken = find_break(files)
        except (OSError, WeftError) as error:
            items.append(FindingItem(where=files.path, reason=str(error)))
            continue
        if broken is not None:
            where = f"{os.path.basename(broken.file)}:{broken.line}"
            items.append(FindingItem(where=where, reason=f"record {broken.seq} {broken.reason}"))
    if not items:
        return []
    return [
        DoctorFinding(
            severity="problem",
            area=LOG_AREA,
            what="a log of decisions is not as it was written",
            means="somebody changed it, or the disk did: what it says of that time proves nothing",
            repair="keep a copy if it matters; weft permission log --verify checks the log of a project",
            items=tuple(items),
        )
    ]


SHOWN = 20


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix", action="store_true", help="fix what can be fixed, and keep a copy of the originals"
    )
    add_format(parser)
    add_place(parser)


def doctor_command(chosen: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    case = DoctorInput(
        env=os.environ,
        paths=paths,
        directory=chosen.dir,
        root=resolve_storage_root(os.environ, paths, chosen.store),
        now=read_clock(),
    )
    findings, cured, backup = _examine(case), list[RepairResult](), ""
    if chosen.fix and any(finding.cure for finding in findings):
        treating = FindingRepairer(case)
        cured = treating.repair(findings)
        backup = treating.backup
        findings = _examine(case)
    if chosen.format == "json":
        write_json(_to_report(findings, cured, backup))
    else:
        for line in to_lines(findings, cured, backup, Paint(sys.stdout)):
            print(line)
    return ExitCode.FAILED if _count(findings, "problem") else ExitCode.DONE


def _examine(case: DoctorInput) -> list[DoctorFinding]:
    with ProgressLine("reading sessions") as progress:
        return [*examine(case, on_progress=progress), *examine_logs(case), *examine_sandbox(case)]


def _count(findings: list[DoctorFinding], severity: str) -> int:
    return sum(finding.severity == severity for finding in findings)


def _to_report(findings: list[DoctorFinding], cured: list[RepairResult], backup: str) -> dict[str, Any]:
    return {
        "fine": not _count(findings, "problem"),
        "findings": [_to_row(finding) for finding in findings],
        "fixed": [each for each in cured if each.done],
        "notFixed": [each for each in cured if each.failed],
        "backup": backup,
    }


def _to_row(finding: DoctorFinding) -> dict[str, Any]:
    items = [{"where": item.where, "reason": item.reason} for item in finding.items]
    return {**asdict(finding), "items": items}


def to_lines(
    findings: list[DoctorFinding], cured: list[RepairResult], backup: str, paint: Paint
) -> Iterator[str]:
    """Yield what was fixed, and then the findings that are left, worst first."""
    for each in cured:
        said = paint.green(f"fixed: {each.done}") if each.done else paint.red(f"not fixed: {each.failed}")
        yield f"{sanitize(each.where)}: {said}"
    if backup:
        yield paint.dim(f"originals are in {backup}")
    marks = {"problem": paint.red("problem"), "warning": paint.yellow("warning"), "note": paint.dim("note")}
    for severity in ("problem", "warning", "note"):
        for finding in findings:
            if finding.severity == severity:
                yield f"{marks[severity]}  {finding.area}: {sanitize(finding.what)}"
                yield from _details(finding, paint)
    problems, warnings = _count(findings, "problem"), _count(findings, "warning")
    yield f"{problems} problems, {warnings} warnings" if problems or warnings else paint.green("all is well")


def _details(finding: DoctorFinding, paint: Paint) -> Iterator[str]:
    if finding.means:
        yield f"         {finding.means}"
    if finding.repair:
        yield f"         {paint.bold('→')} {sanitize(finding.repair)}"
    for item in finding.items[:SHOWN]:
        reason = f": {sanitize(item.reason)}" if item.reason else ""
        yield f"         {paint.dim('·')} {sanitize(item.where)}{reason}"
    if len(finding.items) > SHOWN:
        yield paint.dim(f"         and {len(finding.items) - SHOWN} more (--format json lists all)")
