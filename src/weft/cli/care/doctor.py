"""`weft doctor`: what is wrong with the machine, the configuration and the store, and the way out of each."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

from weft.cli.care.decisions import examine_logs
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.progress import Progress
from weft.config.store_address import storage_root
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.local.sandbox import examine_sandbox
from weft.maintenance.doctor import examine
from weft.maintenance.environment import Case
from weft.maintenance.findings import Finding
from weft.maintenance.repair import Cured, Doctor

SHOWN = 20


def doctor(chosen: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    case = Case(
        env=os.environ,
        paths=paths,
        directory=chosen.dir,
        root=storage_root(os.environ, paths, chosen.store),
        now=read_clock(),
    )
    findings, cured, backup = _examined(case), list[Cured](), ""
    if chosen.fix and any(finding.cure for finding in findings):
        treating = Doctor(case)
        cured = treating.treat(findings)
        backup = treating.backup
        findings = _examined(case)
    if chosen.format == "json":
        write_json(_to_report(findings, cured, backup))
    else:
        for line in to_lines(findings, cured, backup, Paint(sys.stdout)):
            print(line)
    return Exit.FAILED if _count(findings, "problem") else Exit.DONE


def _examined(case: Case) -> list[Finding]:
    with Progress("reading sessions") as told:
        return [*examine(case, told=told), *examine_logs(case), *examine_sandbox(case)]


def _count(findings: list[Finding], severity: str) -> int:
    return sum(finding.severity == severity for finding in findings)


def _to_report(findings: list[Finding], cured: list[Cured], backup: str) -> dict[str, Any]:
    return {
        "fine": not _count(findings, "problem"),
        "findings": findings,
        "fixed": [each for each in cured if each.done],
        "notFixed": [each for each in cured if each.failed],
        "backup": backup,
    }


def to_lines(findings: list[Finding], cured: list[Cured], backup: str, paint: Paint) -> Iterator[str]:
    """The findings as people read them, worst first; what was put right before what is left."""
    for each in cured:
        said = paint.green(f"fixed: {each.done}") if each.done else paint.red(f"not fixed: {each.failed}")
        yield f"{plain(each.where)}: {said}"
    if backup:
        yield paint.dim(f"originals are in {backup}")
    marks = {"problem": paint.red("problem"), "warning": paint.yellow("warning"), "note": paint.dim("note")}
    for severity in ("problem", "warning", "note"):
        for finding in findings:
            if finding.severity == severity:
                yield f"{marks[severity]}  {finding.area}: {plain(finding.what)}"
                yield from _details(finding, paint)
    problems, warnings = _count(findings, "problem"), _count(findings, "warning")
    yield f"{problems} problems, {warnings} warnings" if problems or warnings else paint.green("all is well")


def _details(finding: Finding, paint: Paint) -> Iterator[str]:
    if finding.means:
        yield f"         {finding.means}"
    if finding.repair:
        yield f"         {paint.bold('→')} {plain(finding.repair)}"
    for item in finding.items[:SHOWN]:
        reason = f": {plain(item.reason)}" if item.reason else ""
        yield f"         {paint.dim('·')} {plain(item.where)}{reason}"
    if len(finding.items) > SHOWN:
        yield paint.dim(f"         and {len(finding.items) - SHOWN} more (--format json lists all)")
