"""What starting costs: CPU of whole commands beside a bare `python -c pass`, as ratios in one run.

    make bench

Bytecode is compiled first. The best of several runs counts: CPU time is inflated by whatever else the machine does.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from trees import Forest

from weft.host.git import Git
from weft.model.ids import ProjectID

SESSIONS = 2_000
ROUNDS = 15


def cpu_of(command: list[str], where: Path, env: dict[str, str]) -> float:
    """User and system milliseconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=where, env=env, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        repository, data = Path(scratch, "repository"), Path(scratch, "data")
        repository.mkdir()
        (repository / "README").write_text("x")
        git = Git(os.environ)
        git.start(str(repository), message="start")
        env = {**os.environ, "XDG_DATA_HOME": str(data)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        weft = str(Path(sys.executable).with_name("weft"))
        (root,) = git.root_commits(str(repository))
        storage = data / "opencode" / "storage"
        Forest(storage, ProjectID(root), str(repository)).plant(SESSIONS)
        # One run settles the place, as any user's first run does; a list writes nothing.
        subprocess.run([weft, "run", "-m", "scripted/demo", "--format", "json", "hi"], cwd=repository, env=env,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "weft --version": [weft, "--version"],
            f"weft session list ({SESSIONS:,} sessions)": [weft, "session", "list"],
            "weft session list -n 20 --format json": [
                weft,
                "session",
                "list",
                "-n",
                "20",
                "--format",
                "json",
            ],
        }
        best = {
            name: min(cpu_of(each, repository, env) for _ in range(ROUNDS)) for name, each in commands.items()
        }
        bare = best["python -c pass"]
        for name, spent in best.items():
            print(f"{spent:8.1f} ms  {spent / bare:5.2f}x  {name}")


if __name__ == "__main__":
    main()
