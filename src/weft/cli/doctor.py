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
from weft.config.store_address import resolve_store_url
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.local.health import list_findings
from weft.maintenance.environment import DoctorInput
from weft.maintenance.repair import FindingRepairer, RepairResult
from weft.model.display import format_count
from weft.model.health import DoctorFinding

MAX_ITEMS = 20


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix", action="store_true", help="fix what can be fixed, and keep a copy of the originals"
    )
    add_format(parser)
    add_place(parser)


def doctor_command(args: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    input = DoctorInput(
        env=os.environ,
        paths=paths,
        directory=args.dir,
        url=resolve_store_url(os.environ, paths, args.store),
        now=read_clock(),
    )
    findings, repairs, backup = _find_with_progress(input), list[RepairResult](), ""
    if args.fix and any(finding.cure for finding in findings):
        repairer = FindingRepairer(input)
        repairs = repairer.repair(findings)
        backup = repairer.backup
        findings = _find_with_progress(input)
    if args.format == "json":
        write_json(_to_report(findings, repairs, backup))
    else:
        for line in to_lines(findings, repairs, backup, Paint(sys.stdout)):
            print(line)
    return ExitCode.FAILED if _count_findings(findings, "problem") else ExitCode.DONE


def _find_with_progress(input: DoctorInput) -> list[DoctorFinding]:
    with ProgressLine("reading sessions") as progress:
        return list_findings(input, on_progress=progress)


def _count_findings(findings: list[DoctorFinding], severity: str) -> int:
    return sum(finding.severity == severity for finding in findings)


def _to_report(findings: list[DoctorFinding], repairs: list[RepairResult], backup: str) -> dict[str, Any]:
    return {
        "fine": not _count_findings(findings, "problem"),
        "findings": [_to_row(finding) for finding in findings],
        "fixed": [each for each in repairs if each.done],
        "notFixed": [each for each in repairs if each.failed],
        "backup": backup,
    }


def _to_row(finding: DoctorFinding) -> dict[str, Any]:
    items = [{"where": item.where, "reason": item.reason} for item in finding.items]
    return {**asdict(finding), "items": items}


def to_lines(
    findings: list[DoctorFinding], repairs: list[RepairResult], backup: str, paint: Paint
) -> Iterator[str]:
    """Yield what was fixed, and then the findings that are left, worst first."""
    for repair in repairs:
        outcome = (
            paint.green(f"fixed: {repair.done}") if repair.done else paint.red(f"not fixed: {repair.failed}")
        )
        yield f"{sanitize(repair.where)}: {outcome}"
    if backup:
        yield paint.dim(f"originals are in {backup}")
    marks = {"problem": paint.red("problem"), "warning": paint.yellow("warning"), "note": paint.dim("note")}
    for severity in ("problem", "warning", "note"):
        for finding in findings:
            if finding.severity == severity:
                yield f"{marks[severity]}  {finding.area}: {sanitize(finding.what)}"
                yield from _list_details(finding, paint)
    problems, warnings = _count_findings(findings, "problem"), _count_findings(findings, "warning")
    yield (
        f"{format_count(problems, 'problem')}, {format_count(warnings, 'warning')}"
        if problems or warnings
        else paint.green("all is well")
    )


def _list_details(finding: DoctorFinding, paint: Paint) -> Iterator[str]:
    if finding.means:
        yield f"         {finding.means}"
    if finding.repair:
        yield f"         {paint.bold('→')} {sanitize(finding.repair)}"
    for item in finding.items[:MAX_ITEMS]:
        reason = f": {sanitize(item.reason)}" if item.reason else ""
        yield f"         {paint.dim('·')} {sanitize(item.where)}{reason}"
    if len(finding.items) > MAX_ITEMS:
        yield paint.dim(f"         and {len(finding.items) - MAX_ITEMS} more (--format json lists all)")
