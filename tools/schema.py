"""Requests made up from `GET /doc` by schemathesis, against a `weft serve` of its own without a shell.

    python tools/schema.py --cache DIR [--examples 20]

What could start a program, reach another machine or never ends is left out: what is made up here is never to be run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from clients import free_port, started

PACKAGE = "schemathesis==4.32.5"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
LEFT_OUT = (
    "config.update|global.config.update|auth.*|mcp.*|provider.oauth.*|.*share.*|session.command|session.init"
    "|weft.session.initialize|event.subscribe|global.event|tui.control.next|weft.metrics|worktree.*|log"
    "|global.dispose|instance.dispose"
)


def install(cache: Path) -> Path:
    environment = cache / "schemathesis"
    program = environment / "bin" / "schemathesis"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "-q", PACKAGE], check=True)
    return program


def prepare(root: Path) -> dict[str, str]:
    """A home of its own with a project in it, and the environment that leads there. It has no model, so nothing runs."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENCODE", "XDG_", "WEFT"))
    }
    kept = {name: value for name, value in kept.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    homes = {"HOME": "home"} | {
        f"XDG_{kind}_HOME": kind.lower() for kind in ("DATA", "CACHE", "CONFIG", "STATE")
    }
    environment = kept | {name: str(root / where) for name, where in homes.items()}
    for where in (*homes.values(), "project"):
        (root / where).mkdir(parents=True, exist_ok=True)
    (root / "project" / "hello.txt").write_text("hello\n")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "init"]):
        subprocess.run(["git", *who, *command], cwd=root / "project", check=True, env=environment)
    return environment


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--weft", default=str(Path(sys.executable).parent / "weft"))
    parser.add_argument("--examples", default="20", help="how many for each operation")
    chosen = parser.parse_args()
    program = install(chosen.cache.resolve())
    url = f"http://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="weft-schema-") as name:
        root = Path(name)
        environment = prepare(root)
        server = [chosen.weft, "serve", "--auth", "none", "--no-shell", "--port", url.rpartition(":")[2]]
        with started(
            server, f"{url}/global/health", root / "serve.log", cwd=root / "project", env=environment
        ):
            tried = subprocess.run(
                [
                    str(program),
                    "run",
                    f"{url}/doc",
                    f"--checks={CHECKS}",
                    "--phases=coverage,fuzzing",
                    f"--max-examples={chosen.examples}",
                    f"--exclude-operation-id-regex=^({LEFT_OUT})$",
                    "--continue-on-failure",
                    "--request-timeout=30",
                    "--no-color",
                ],
                cwd=root,
                env=environment,
                check=False,
            )
        log = (root / "serve.log").read_text()
        faults = [line for line in log.splitlines() if "err_" in line]
    if faults:
        sys.stdout.write("the server noted faults of its own:\n" + "\n".join(faults) + "\n")
    return 1 if faults else tried.returncode


if __name__ == "__main__":
    sys.exit(main())
