"""Logins at providers: methods of plugins and our own, through the API, HTTP and the command."""

import asyncio
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from given.engine import NOW, InstantClock
from given.http_server import serve_project
from given.plugins import Project, open_worker
from given.web import Answer, Web, open_web
from weft.cli.main import run_command
from weft.config.schema import Config
from weft.errors import InvalidInputError, NotFoundError, ProviderAuthError
from weft.host.tasks import STEP_SECONDS
from weft.local.open import open_directory
from weft.local.provider_logins import list_built_in_logins
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage
from weft.model.part import ModelRef
from weft.model.provider import AuthMethod, AuthPrompt, LoginInstructions, OAuth
from weft.plugin.auth import Authorized, OAuthMethod, PluginAuth, list_auths, to_plugin_login
from weft.provider.github_login import parse_server
from weft.testing.clock import HandClock

ACME = """
    from weft.model.provider import AuthPrompt, OAuth
    from weft.plugin.auth import ApiMethod, Auth, Authorized, OAuthMethod

    def authorize(inputs):
        async def finish(code):
            if code == "no":
                return None
            if code == "odd":
                return {"access": "a"}
            if code == "worse":
                raise RuntimeError("the server is on fire")
            return OAuth(refresh="r", access=f"a-{code}", expires=12, account_id="me")

        return Authorized(
            url=f"https://login.acme.test/?as={inputs.get('as', '')}",
            instructions="Bring the code.",
            method="code",
            callback=finish,
        )

    ACME = Auth(
        provider="acme",
        methods=(
            OAuthMethod(label="Acme", authorize=authorize, prompts=(AuthPrompt(key="as", message="who"),)),
            ApiMethod(label="Acme key"),
        ),
    )
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def auth_file() -> Path:
    return Path(os.environ["XDG_DATA_HOME"]) / "opencode" / "auth.json"


def read_logins(path: Path) -> Any:
    if not path.exists():
        return {}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return json.loads(path.read_bytes())


def store(path: Path, entries: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries))


# --- a plugin's ---


async def test_a_plugin_defines_a_login_and_its_result_is_stored(project: Project, auth_file: Path) -> None:
    project.plugin("acme", ACME)
    async with open_directory(project.options()) as app:
        there = app.configuration
        methods = await there.list_auth_methods()
        begun = await there.authorize("acme", 0, inputs={"as": "ada"})
        await there.finish_authorizing("acme", 0, code="42")

        assert methods["acme"] == [
            AuthMethod(type="oauth", label="Acme", prompts=(AuthPrompt(key="as", message="who"),)),
            AuthMethod(type="api", label="Acme key"),
        ]
        assert methods["anthropic"] == [AuthMethod(type="api", label="API key")]
        assert begun == LoginInstructions(
            url="https://login.acme.test/?as=ada", method="code", instructions="Bring the code."
        )
        assert read_logins(auth_file) == {
            "acme": {"type": "oauth", "refresh": "r", "access": "a-42", "expires": 12, "accountId": "me"}
        }
        with pytest.raises(InvalidInputError, match="no such login with acme was begun"):
            await there.finish_authorizing("acme", 0, code="42")


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("no", ProviderAuthError, "was refused"),
        ("odd", ProviderAuthError, "returned a dict"),
        ("worse", ProviderAuthError, "the server is on fire"),
        ("", InvalidInputError, "no code was given"),
    ],
)
async def test_a_login_that_fails_says_why_and_stores_nothing(
    project: Project, auth_file: Path, code: str, error: type[Exception], words: str
) -> None:
    project.plugin("acme", ACME)
    async with open_directory(project.options()) as app:
        await app.configuration.authorize("acme", 0)
        with pytest.raises(error, match=words):
            await app.configuration.finish_authorizing("acme", 0, code=code)
        assert read_logins(auth_file) == {}


async def test_an_invalid_login_method_cannot_be_started(project: Project) -> None:
    project.plugin("acme", ACME)
    async with open_directory(project.options()) as app:
        there = app.configuration
        for place, words in ((1, "does not use a browser"), (2, "there are 2"), (-1, "there are 2")):
            with pytest.raises(InvalidInputError, match=words):
                await there.authorize("acme", place)
        with pytest.raises(NotFoundError, match="anthropic"):
            await there.authorize("anthropic", 0)


async def test_an_invalid_login_declaration_disables_only_the_logins_of_the_plugin(project: Project) -> None:
    project.plugin("acme", ACME.replace('provider="acme"', 'provider="../acme"'))
    async with open_directory(project.options()) as app:
        assert "../acme" not in await app.configuration.list_auth_methods()
    assert any("not the name of a provider" in str(said) for said in project.warnings)


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "javascript:alert(1)", "https://a b", 3])
async def test_an_unsafe_login_address_is_not_shown(url: Any) -> None:
    def begin(_: Any) -> Authorized:
        return Authorized(url=url, callback=lambda _: None)

    method = OAuthMethod(label="x", authorize=begin)
    async with open_worker("x") as worker:
        login = to_plugin_login(worker, PluginAuth(provider="x", methods=(method,)), HandClock())
        with pytest.raises(ProviderAuthError, match="did not return a URL to open"):
            await login.authorize(method, {})


async def test_a_login_that_never_begins_is_given_up() -> None:
    async def never_authorize(_: Any) -> Authorized:
        await asyncio.Event().wait()
        raise AssertionError

    clock, method = HandClock(), OAuthMethod(label="x", authorize=never_authorize)
    async with open_worker("x") as worker, asyncio.TaskGroup() as tasks:
        login = to_plugin_login(worker, PluginAuth(provider="x", methods=(method,)), clock)
        waiting = tasks.create_task(_expect_error(login.authorize(method, {})))
        while not waiting.done():
            clock.turn(10_000)
            await asyncio.sleep(0)
        assert "took longer than 30 seconds" in str(waiting.result())


async def _expect_error(work: Any) -> Exception:
    with pytest.raises(ProviderAuthError) as caught:
        await work
    return caught.value


def test_a_login_declared_in_a_module_is_found_once() -> None:
    auth = PluginAuth(provider="acme")
    assert list_auths({"A": auth, "B": auth, "other": 3}) == [auth]


# --- what a login is good for ---


def piece(delta: dict[str, Any], reason: str | None = None) -> bytes:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


CHAT = Answer(
    piece({"role": "assistant", "content": "Well woven"}) + piece({}, "stop") + b"data: [DONE]\n\n",
    kind="text/event-stream",
)


async def test_requests_to_models_use_the_login(project: Project, auth_file: Path) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        project.plugin(
            "acme",
            f"""
            from weft.plugin.auth import Auth

            count = 0

            async def load(auth, provider):
                global count
                count += 1
                assert provider.id == "acme" and "m" in provider.models
                return {{
                    "apiKey": f"{{auth.access}}-{{count}}",
                    "baseURL": "{web.url}/v1",
                    "headers": {{"x-account": auth.account_id}},
                }}

            ACME = Auth(provider="acme", loader=load)
            """,
        )
        models = {"m": {"limit": {"context": 8000, "output": 1000}}}
        project.configure(provider={"acme": {"npm": "@ai-sdk/openai-compatible", "models": models}})
        login = {"type": "oauth", "refresh": "r", "access": "token", "expires": 0, "accountId": "me"}
        store(auth_file, {"acme": login})
        async with open_directory(project.options()) as app:
            session = await app.create_session(SessionInput(title="t"))
            for _ in range(2):
                asked = PromptInput(
                    parts=(TextInput(text="hi"),), model=ModelRef(provider_id="acme", model_id="m")
                )
                answer = await app.prompt(session.id, asked)
                assert isinstance(answer.info, AssistantMessage)
                assert answer.info.error is None
        sent = [(each.headers["authorization"], each.headers["x-account"]) for each in web.requests]
        assert sent == [("Bearer token-1", "me"), ("Bearer token-2", "me")]


# --- over HTTP, and by the command ---


def own_plugin(code: str) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode" / "plugin" / "acme.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(code))


def test_a_login_works_over_http(tmp_path: Path, auth_file: Path) -> None:
    own_plugin(ACME)
    with serve_project(tmp_path) as server:
        assert [each["type"] for each in server.get("/provider/auth")["acme"]] == ["oauth", "api"]
        begun = server.post("/provider/acme/oauth/authorize", {"method": 0})
        assert begun == {
            "url": "https://login.acme.test/?as=",
            "method": "code",
            "instructions": "Bring the code.",
        }
        callback = "/provider/acme/oauth/callback"
        assert server.get_refusal(server.client.post(callback, json={"method": 0})) == (
            400,
            "InvalidInputError",
        )
        assert server.post(callback, {"method": 0, "code": "7"}) is True
        assert read_logins(auth_file)["acme"]["access"] == "a-7"
        assert server.get_refusal(server.client.post(callback, json={"method": 0.5})) == (
            400,
            "InvalidInputError",
        )
        server.post("/provider/acme/oauth/authorize", {"method": 0})
        refused = server.client.post(callback, json={"method": 0, "code": "no"})
        assert server.get_refusal(refused) == (502, "ProviderAuthError")


def test_the_command_prints_the_address_and_reads_the_code(
    tmp_path: Path,
    auth_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own_plugin(ACME)
    monkeypatch.setattr(sys, "stdin", StringIO("9\n"))
    arguments = ("auth", "login", "acme", "--method", "Acme", "--dir", str(tmp_path))
    assert run_command(arguments) == 0
    said = capsys.readouterr()
    assert "https://login.acme.test/" in said.err
    assert "a-9" not in said.out + said.err
    assert read_logins(auth_file)["acme"]["access"] == "a-9"


# --- GitHub's ---


class Turns(dict[str, Answer]):
    """Pages, one of which changes at each request until the last remains."""

    def __init__(self, pages: Mapping[str, Answer], path: str, *turns: dict[str, Any]) -> None:
        super().__init__(pages)
        self._path = path
        self._turns = [Answer(json.dumps(each).encode()) for each in turns]

    def get(self, path: str, otherwise: Any = None) -> Any:
        if path != self._path:
            return super().get(path, otherwise)
        return self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]


DEVICE = {
    "device_code": "dev",
    "user_code": "ABCD-1234",
    "verification_uri": "https://github.com/login/device",
    "expires_in": 60,
    "interval": 5,
}
PENDING = {"error": "authorization_pending"}
TOKEN = "/login/oauth/access_token"


def pages(*turns: dict[str, Any]) -> Turns:
    return Turns({"/login/device/code": Answer(json.dumps(DEVICE).encode())}, TOKEN, *turns)


class PiecewiseClock(InstantClock):
    """A clock that does not wait, except that deadlines are counted in pieces."""

    def __init__(self) -> None:
        super().__init__(NOW)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds == STEP_SECONDS:
            await asyncio.Event().wait()
        self.slept.append(seconds)
        await super().sleep(seconds)


async def log_in_to_copilot(web: Web, clock: PiecewiseClock, **options: str) -> tuple[Authorized, Any]:
    said = {"github-copilot": {"options": {"clientId": "Iv1.test", **options}}}
    (login,) = list_built_in_logins(msgspec.convert({"provider": said}, Config), clock)
    (method,) = login.auth.methods
    assert isinstance(method, OAuthMethod)
    begun = await login.authorize(method, {"enterpriseUrl": web.url})
    return begun, await login.finish(begun, None)


async def test_github_is_polled_at_its_interval_until_the_code_is_entered() -> None:
    clock = PiecewiseClock()
    with open_web(pages(PENDING, {"error": "slow_down", "interval": 12}, {"access_token": "gho_x"})) as web:
        begun, auth = await log_in_to_copilot(web, clock)

        assert (begun.url, begun.instructions) == ("https://github.com/login/device", "Enter code: ABCD-1234")
        host = web.url.removeprefix("http://")
        assert auth == OAuth(refresh="gho_x", access="gho_x", expires=0, enterprise_url=host)
        assert clock.slept == [5, 5, 12]
        assert json.loads(web.requests[0].body) == {"client_id": "Iv1.test", "scope": "read:user"}
        assert json.loads(web.requests[-1].body) == {
            "client_id": "Iv1.test",
            "device_code": "dev",
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        }


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        ({"error": "access_denied"}, "reports that the login was refused"),
        ({"error": "expired_token"}, "expired_token"),
        ({}, "no reason given"),
        ({"access_token": 3}, "an unexpected document"),
        (PENDING, "the code has expired"),
    ],
)
async def test_a_failed_login_at_github_is_reported(turn: dict[str, Any], words: str) -> None:
    with open_web(pages(turn)) as web, pytest.raises(ProviderAuthError, match=words):
        await log_in_to_copilot(web, PiecewiseClock())


async def test_without_its_own_application_weft_does_not_use_that_of_another_program() -> None:
    with open_web({}) as web:
        with pytest.raises(ProviderAuthError, match=r"provider.github-copilot.options.clientId"):
            await log_in_to_copilot(web, PiecewiseClock(), clientId="")
        assert web.requests == []


def test_the_address_of_a_company_is_accepted_in_any_form() -> None:
    assert parse_server("") == "https://github.com"
    assert (
        parse_server(" company.ghe.com ")
        == parse_server("https://company.ghe.com/x")
        == "https://company.ghe.com"
    )
    for typed in ("http://company.ghe.com", "ftp://x", "https://", "https://u:p@x", "https://x:y"):
        with pytest.raises(InvalidInputError):
            parse_server(typed)


AT_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from weft.__main__ import main
sys.exit(main())
"""


def test_at_a_terminal_the_person_chooses_a_method_and_answers_its_questions(
    tmp_path: Path, auth_file: Path
) -> None:
    own_plugin(ACME)
    screen, line = pty.openpty()
    command = [sys.executable, "-c", AT_TERMINAL, "auth", "login", "acme", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=line, stdout=line, stderr=line, start_new_session=True) as child:
        os.close(line)
        for words, typed in (("which way to log in: ", "1"), ("who: ", "ada"), ("code: ", "5")):
            said = read_until(screen, words.encode())
            os.write(screen, f"{typed}\n".encode())
        read_until(screen, b"logged in with acme")
    os.close(screen)
    assert "https://login.acme.test/?as=ada" in said.decode()
    assert child.returncode == 0
    assert read_logins(auth_file)["acme"]["access"] == "a-5"


def test_a_number_that_is_no_choice_is_reported_with_the_question_that_it_answers(
    tmp_path: Path, auth_file: Path
) -> None:
    choices = 'options=(AuthChoice(label="Ada", value="ada"), AuthChoice(label="Bob", value="bob"))'
    own_plugin(
        ACME.replace("import AuthPrompt,", "import AuthChoice, AuthPrompt,").replace(
            'message="who"', f'message="who", {choices}'
        )
    )
    screen, line = pty.openpty()
    command = [sys.executable, "-c", AT_TERMINAL, "auth", "login", "acme", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=line, stdout=line, stderr=line, start_new_session=True) as child:
        os.close(line)
        for words, typed in (("which way to log in: ", "1"), ("who: ", "3")):
            read_until(screen, words.encode())
            os.write(screen, f"{typed}\n".encode())
        said = read_until(screen, b"from 1 to 2")
    os.close(screen)
    assert "who: '3' is not one of the choices" in said.decode()
    assert (child.returncode, auth_file.exists()) == (2, False)


def test_ctrl_c_where_the_code_is_typed_ends_the_login(tmp_path: Path, auth_file: Path) -> None:
    own_plugin(ACME)
    screen, line = pty.openpty()
    command = [sys.executable, "-c", AT_TERMINAL, "auth", "login", "acme", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=line, stdout=line, stderr=line, start_new_session=True) as child:
        os.close(line)
        for words, typed in (("which way to log in: ", b"1\n"), ("who: ", b"ada\n"), ("code: ", b"\x03")):
            read_until(screen, words.encode())
            os.write(screen, typed)
        try:
            code = child.wait(timeout=60)
        finally:
            child.kill()
    os.close(screen)
    assert (code, auth_file.exists()) == (130, False)


def read_until(screen: int, words: bytes) -> bytes:
    said = b""
    while words not in said:
        said += os.read(screen, 4096)
    return said
