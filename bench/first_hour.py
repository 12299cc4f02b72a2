"""The first hour beside other libraries: the length of six programs, the CPU to import and to run one, and per question.

    python bench/first_hour.py [--peers PYTHON] [--rounds 5] [--questions 200]

`bench/first_hour/README.md` says what is compared and how. A library that is not installed is left out.
"""

import argparse
import io
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

PROGRAMS = Path(__file__).with_suffix("")
NAMES = ("agent", "tool", "value", "stream", "test_script", "test_tape")
# What the first program has to import. weft loads a name when it is first used.
IMPORTS = {
    "weft": "import weft; weft.open",
    "pydantic_ai": "import pydantic_ai; pydantic_ai.Agent",
    "openai_agents": "import agents; agents.Agent; agents.Runner",
    "claude_agent_sdk": "import claude_agent_sdk; claude_agent_sdk.query",
}
MODULES = {library: text.split()[1].rstrip(";") for library, text in IMPORTS.items()}


def count(program: Path) -> tuple[int, int]:
    """Return the lines of a program that have code, and the characters of its code: no comment, docstring or indentation."""
    lines: dict[int, int] = {}
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(program.read_text()).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT):
            begins = begins or token.type in (tokenize.NEWLINE, tokenize.INDENT)
            continue
        if token.type == tokenize.ENDMARKER or (begins and token.type == tokenize.STRING):
            continue
        begins = False
        for number, line in enumerate(token.line.splitlines(), start=token.start[0]):
            lines[number] = len(line.partition("  #")[0].strip())
    return len(lines), sum(lines.values())


def cpu_of(command: list[str], where: Path, env: dict[str, str]) -> float:
    """Return the user and system milliseconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, where, env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def run(command: list[str], where: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(library: str, python: str, where: Path, env: dict[str, str]) -> None:
    """Run every program of a library once, its tests with pytest. Exit with its output if one fails."""
    for name in NAMES:
        program = PROGRAMS / library / f"{name}.py"
        if not program.exists():
            continue
        if not name.startswith("test_"):
            assert run([python, str(program)], where, env).strip(), program
            continue
        test = where / library / program.name
        test.parent.mkdir(exist_ok=True)
        for each in (PROGRAMS / library).glob("*.py"):
            shutil.copy(each, test.parent)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
        if name == "test_tape":
            run([*command, "--weft-record", str(test)], where, env)
        run([*command, str(test)], where, env)


def measure(
    pythons: dict[str, str], where: Path, env: dict[str, str], *, rounds: int, questions: int
) -> dict[str, dict[str, float]]:
    """Return medians by row and library. Every round measures each library once, so that all meet the same machine."""
    found: dict[str, dict[str, list[float]]] = {}

    def note(row: str, library: str, value: float) -> None:
        found.setdefault(row, {}).setdefault(library, []).append(value)

    for _ in range(rounds):
        for library, python in pythons.items():
            bare = cpu_of([python, "-c", "pass"], where, env)
            module = MODULES[library]
            note(
                "import the package, ms",
                library,
                cpu_of([python, "-c", f"import {module}"], where, env) - bare,
            )
            note(
                "import what is used, ms",
                library,
                cpu_of([python, "-c", IMPORTS[library]], where, env) - bare,
            )
            program = str(PROGRAMS / library / "agent.py")
            note("run the first program, ms", library, cpu_of([python, program], where, env) - bare)
            asking = str(PROGRAMS / library / "questions.py")
            spent = float(run([python, asking, str(questions)], where, env))
            note("one question, ms", library, 1000 * spent)
    return {
        row: {library: statistics.median(values) for library, values in by_library.items()}
        for row, by_library in found.items()
    }


def show(libraries: list[str], rows: dict[str, dict[str, str]]) -> None:
    print(f"{'':<34}" + "".join(f"{library:>18}" for library in libraries))
    for row, cells in rows.items():
        print(f"{row:<34}" + "".join(f"{cells.get(library, '–'):>18}" for library in libraries))


def is_installed(python: str, module: str) -> bool:
    program = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", program], check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--peers",
        type=os.path.abspath,
        default=sys.executable,
        help="the Python that has the other libraries",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--questions", type=int, default=200)
    chosen = parser.parse_args()
    pythons = {library: sys.executable if library == "weft" else chosen.peers for library in IMPORTS}
    missing = [library for library, python in pythons.items() if not is_installed(python, MODULES[library])]
    for library in missing:
        del pythons[library]
        print(f"{library} is not installed in {chosen.peers}, and is left out")

    lengths = {
        f"{name}, lines / characters": {
            library: "{} / {}".format(*count(PROGRAMS / library / f"{name}.py"))
            for library in IMPORTS
            if (PROGRAMS / library / f"{name}.py").exists()
        }
        for name in NAMES
    }
    show(list(IMPORTS), lengths)
    fake = count(PROGRAMS / "claude_agent_sdk" / "fake_cli.py")
    print("The programs for claude_agent_sdk also need a fake of {} lines / {} characters.\n".format(*fake))

    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        where = Path(scratch, "project")
        where.mkdir()
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "XDG_"))}
        env |= {"HOME": scratch, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for library, python in pythons.items():
            check(library, python, where, env)
        medians = measure(pythons, where, env, rounds=chosen.rounds, questions=chosen.questions)
    rows = {
        row: {library: f"{value:.2f}" for library, value in cells.items()} for row, cells in medians.items()
    }
    show(list(pythons), rows)


if __name__ == "__main__":
    main()
