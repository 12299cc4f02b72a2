"""Start a cluster on this machine for trying it: Postgres, two nodes and nginx, all on loopback. `make cluster` runs this.

    python deploy/try_cluster.py [--nodes 2] [--port 4096] [--dir PATH] [--lease 15]

It needs the programs of Postgres and nginx (Debian: postgresql, nginx). Everything is kept in a temporary directory and
ends with Ctrl-C. The nodes ask for no password: this is for one machine.
"""

import argparse
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/pgsql/bin",
)
WAIT_SECONDS = 60
LEASE_SECONDS = 15.0  # the default of a Postgres store

# What surrounds `nginx-cluster.conf`, which the compose file uses as it is.
NGINX = """daemon off;
worker_processes 1;
pid {place}/nginx.pid;
error_log stderr;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
{site}
}}
"""


def find_program(name: str) -> str:
    found = [path for place in PLACES for path in sorted(glob.glob(f"{place}/{name}"))]
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or next(reversed(found), None)
    if path is None:
        sys.exit(f"there is no {name} here; on Debian: apt-get install postgresql nginx")
    return path


def find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def as_postgres() -> list[str]:
    """Return the beginning of a command line: Postgres refuses to run as root, and nginx would keep large requests as nobody."""
    root = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
    return root if os.getuid() == 0 else []


@contextmanager
def run(
    command: Sequence[str], log: Path, *, cwd: Path, how: signal.Signals = signal.SIGTERM
) -> Iterator[int]:
    """Run a program until the end of the block. Its process id is yielded."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, start_new_session=True
        )
    try:
        yield process.pid
    finally:
        process.send_signal(how)
        process.wait()


def wait_for(port: int, log: Path) -> None:
    for _ in range(WAIT_SECONDS * 20):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens at port {port}:\n{log.read_text()}")


def start_postgres(stack: ExitStack, place: Path, lease: float) -> str:
    """Start a server with an empty database. Return the URL of the store in it."""
    data, port = place / "data", find_port()
    if os.getuid() == 0:
        shutil.chown(place, "postgres", "postgres")
    subprocess.run(
        [*as_postgres(), find_program("initdb"), "--auth=trust", "--username=weft", "--encoding=UTF8", "--no-sync", "-D", str(data)],
        check=True, capture_output=True, cwd="/",
    )  # fmt: skip
    # Nothing of it is kept, so nothing has to be on the disk.
    command = [
        find_program("postgres"),
        "-D",
        str(data),
        "-k",
        str(place),
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-c",
        "fsync=off",
    ]
    stack.enter_context(run([*as_postgres(), *command], place / "postgres.log", cwd=place, how=signal.SIGINT))
    wait_for(port, place / "postgres.log")
    return f"postgres://weft@127.0.0.1:{port}/postgres" + (
        "" if lease == LEASE_SECONDS else f"?lease={lease:g}"
    )


def start_nodes(stack: ExitStack, place: Path, url: str, args: argparse.Namespace) -> dict[int, int]:
    """Start the nodes. Return the port of each with its process."""
    weft, nodes = str(Path(sys.executable).with_name("weft")), {}
    for number in range(1, args.nodes + 1):
        port, name = find_port(), f"node-{number}"
        command = [weft, "serve", "--auth", "none", "--port", str(port), "--store", url, "--node-name", name]
        nodes[port] = stack.enter_context(run(command, place / f"{name}.log", cwd=Path(args.dir)))
    for number, port in enumerate(nodes, 1):
        wait_for(port, place / f"node-{number}.log")
    return nodes


def start_nginx(stack: ExitStack, place: Path, ports: Iterable[int], port: int) -> None:
    """Start nginx with the configuration for a cluster, and with the addresses that this one has."""
    servers = "\n".join(f"    server 127.0.0.1:{each} max_fails=1 fail_timeout=1s;" for each in ports)
    site = Path(__file__).with_name("nginx-cluster.conf").read_text()
    site = re.sub(r"(?:^    server \S+:4096 .+\n)+", f"{servers}\n", site, flags=re.MULTILINE)
    site = site.replace("listen 80;", f"listen 127.0.0.1:{port};")
    (place / "nginx.conf").write_text(NGINX.format(place=place, site=site))
    command = [*as_postgres(), find_program("nginx"), "-c", str(place / "nginx.conf"), "-e", "stderr"]
    stack.enter_context(run(command, place / "nginx.log", cwd=place, how=signal.SIGQUIT))
    wait_for(port, place / "nginx.log")


def main() -> None:
    parser = argparse.ArgumentParser(description="Start a cluster on this machine for trying it.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--port", type=int, default=4096, help="where nginx listens; 0 for any free port")
    parser.add_argument("--dir", default=".", help="the project that the nodes serve")
    parser.add_argument(
        "--lease",
        type=float,
        default=LEASE_SECONDS,
        help="seconds until a node that was killed is taken for dead",
    )
    args = parser.parse_args()
    for name in ("initdb", "postgres", "nginx"):
        find_program(name)  # before anything is started
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place, port = Path(tempfile.mkdtemp(prefix="weft-cluster-")), args.port or find_port()
    try:
        with ExitStack() as stack:
            url = start_postgres(stack, place, args.lease)
            nodes = start_nodes(stack, place, url, args)
            start_nginx(stack, place, nodes, port)
            print(f"the cluster   http://127.0.0.1:{port}   (weft attach http://127.0.0.1:{port})")
            for number, (each, process) in enumerate(nodes.items(), 1):
                print(f"node-{number}        http://127.0.0.1:{each}   (process {process})")
            print(f"its store     {url}")
            print(f"its state     weft cluster status --store '{url}'")
            print(f"end a node    weft cluster drain node-1 --store '{url}'")
            print(f"its logs      {place}")
            print("Ctrl-C ends it", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is ended in order
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
