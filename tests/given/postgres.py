"""A real Postgres server with pgbouncer in front of it, both started by the tests. `WEFT_TEST_POSTGRES` names another server.

A server of our own is started once in each process that runs tests. It listens on a socket and on a port of this machine, and
ends with the process.
"""

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

import pytest

PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql*/bin",
)
HOW_TO_INSTALL = "install it with apt-get install postgresql pgbouncer nginx, or set WEFT_TEST_POSTGRES to the URL of a server"
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "120",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "timezone": "UTC",
}
NUMBERS = count()


def find_program(name: str) -> str:
    """Return the path of a program of Postgres, or of nginx. If there is none, the test is skipped, but in CI it fails."""
    found = [str(path) for place in PLACES for path in sorted(Path("/").glob(f"{place[1:]}/{name}"))]
    path = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin") or next(reversed(found), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no {name} here: {HOW_TO_INSTALL}")
    return path


def run_as(*, end_with_us: bool = False) -> list[str]:
    """Return the beginning of a command line: root may not run servers, and a server must not outlive its tests."""
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    return ["setpriv", *user, *(["--pdeathsig", "QUIT"] if end_with_us else []), "--"]


def _find_port() -> int:
    """Return a free port below those that connections get: one of those could be taken while a server restarts."""
    for port in random.sample(range(15_000, 32_000), 100):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@cache
def get_starter() -> ThreadPoolExecutor:
    """Return a thread that lasts as long as this process: a server ends with the thread that started it."""
    return ThreadPoolExecutor(1, thread_name_prefix="start-servers")


class ServerProcess:
    """A process that writes a line to its log when it is ready."""

    def __init__(self, command: list[str], log: Path, ready: str) -> None:
        get_starter().submit(self._start, command, log, ready).result()

    def _start(self, command: list[str], log: Path, ready: str) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*run_as(end_with_us=True), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=ENVIRONMENT,
                cwd=log.parent,
            )
        command = ["tail", "-n", "+1", "-F", "-s", "0.02", f"--pid={self._process.pid}", str(log)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tail:
            assert tail.stdout is not None
            found = any(ready in line for line in tail.stdout)  # ends with the server, if that fails to start
            tail.kill()
        assert found, log.read_text()

    def end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait()


class PostgresServer:
    """A cluster in a temporary directory, which accepts every user without a password but `locked`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="weft-postgres-"))
        self.port = _find_port()
        if os.getuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        self._data = self.directory / "data"
        self._starts = 0
        self._run([find_program("initdb"), "--no-sync", "--auth=trust", "--username=weft", "--encoding=UTF8", "--locale=C", "-D", str(self._data)])  # fmt: skip
        (self._data / "pg_hba.conf").write_text(
            "host all locked all scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust\n"
        )
        self.start()
        atexit.register(self.remove)

    def start(self) -> None:
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        self._starts += 1
        self._process = ServerProcess(
            [find_program("postgres"), "-D", str(self._data), "-k", str(self.directory), "-h", "127.0.0.1", "-p", str(self.port), *settings],
            self.directory / f"postgres-{self._starts}.log",
            "database system is ready to accept connections",
        )  # fmt: skip

    def stop(self) -> None:
        """End the server at once, as a crash does: every connection is cut."""
        self._process.end(signal.SIGQUIT)

    def remove(self) -> None:
        self.stop()  # pgbouncer notices, and ends with this process
        shutil.rmtree(self.directory, ignore_errors=True)

    def query(self, sql: str, database: str = "postgres") -> list[str]:
        """Return the lines that psql prints for a statement."""
        return self._run([find_program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(self.directory), "-p", str(self.port), "-U", "weft", "-d", database, "-c", sql]).splitlines()  # fmt: skip

    def load(self, script: str, database: str) -> None:
        """Run the statements of a script as one transaction."""
        self._run([find_program("psql"), "-Xq", "-1", "-v", "ON_ERROR_STOP=1", "-h", str(self.directory), "-p", str(self.port), "-U", "weft", "-d", database], script)  # fmt: skip

    def get_url(self, database: str = "postgres", user: str = "weft") -> str:
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}"

    def _run(self, command: list[str], input: str = "") -> str:
        command = [*run_as(), *command]
        ended = subprocess.run(
            command, input=input, capture_output=True, text=True, env=ENVIRONMENT, cwd="/", check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


class PgBouncer:
    """pgbouncer in front of a server. It gives every transaction any of its few connections."""

    def __init__(self, server: PostgresServer) -> None:
        self.port = _find_port()
        directory = server.directory
        users, settings = directory / "users.txt", directory / "pgbouncer.ini"
        users.write_text('"weft" ""\n')
        settings.write_text(
            f"""[databases]
* = host={directory} port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 4
max_client_conn = 300
server_check_delay = 0
"""
        )
        self._process = ServerProcess(
            [find_program("pgbouncer"), str(settings)], directory / "pgbouncer.log", "process up"
        )
        atexit.register(self._process.end, signal.SIGTERM)

    def get_url(self, database: str = "postgres") -> str:
        return f"postgres://weft@127.0.0.1:{self.port}/{database}"


@cache
def get_server() -> PostgresServer:
    return PostgresServer()


@cache
def get_pgbouncer() -> PgBouncer:
    return PgBouncer(get_server())


def remove_servers() -> None:
    """End the servers of this process and remove their files. Processes of xdist end without `atexit`."""
    if get_server.cache_info().currsize:
        get_server().remove()


def make_url(base: str = "", *, pgbouncer: bool = False) -> str:
    """Return the URL of a store that does not exist yet, in a schema of its own."""
    if not base:
        given = os.environ.get("WEFT_TEST_POSTGRES", "")
        base = get_pgbouncer().get_url() if pgbouncer else given or get_server().get_url()
    return f"{base}?schema=test_{os.getpid()}_{next(NUMBERS)}"
