"""Spans and metrics of runs, through OpenTelemetry's own SDK; no text of a conversation unless configured."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from given.engine import MODEL, open_engine, text_prompt
from given.subtask_engine import open_subtask_engine, start, task_call
from given.telemetry_recorder import record_telemetry
from weft.bus import Bus
from weft.cli.demo import make_repository
from weft.config.load import load_config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError, RejectedError
from weft.host.paths import paths_from
from weft.local.telemetry import TelemetrySettings, open_follower, open_telemetry, read_telemetry_settings
from weft.model.agent import AgentInfo
from weft.model.catalog import Limit
from weft.model.event import PartUpdated
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.provider.chunk import Usage
from weft.provider.scripted import End, Fail, Say, Think, UseTool, Wait
from weft.telemetry.export import Exporters, FirstErrorReporter, SafeSpanExporter, TelemetryEmitter
from weft.telemetry.fold import TelemetryFold
from weft.tool.contract import Tool, ToolContext, ToolResult

WEFT = str(Path(sys.executable).with_name("weft"))
ECHO = UseTool(tool="echo", input={"words": "x"})
ABOUT = {"gen_ai__provider__name": "scripted", "gen_ai__request__model": "test"}


async def test_a_run_is_a_tree_of_steps_model_calls_and_tools() -> None:
    used = Usage(input=100, output=20, reasoning=5, cache_read=300, cache_write=0)
    script = [Think(text="hm"), ECHO, End(reason="tool-calls", usage=used)], [Say(text="Done.")]
    async with open_engine(*script, skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    assert seen.tree() == [
        (
            "invoke_agent build",
            [("step", ["chat test", "execute_tool echo"]), ("step", ["chat test"])],
        )
    ]
    run, tool = seen.span("invoke_agent build"), seen.span("execute_tool echo")
    first, last = seen.spans_named("chat test")
    assert {span.context.trace_id for span in seen.spans} == {run.context.trace_id}
    assert all(span.start_time <= span.end_time for span in seen.spans)
    assert dict(first.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "test",
        "gen_ai.response.model": "test",
        "gen_ai.response.finish_reasons": ("tool-calls",),
        "gen_ai.conversation.id": session,
        "gen_ai.agent.name": "build",
        "gen_ai.usage.input_tokens": 400,
        "gen_ai.usage.output_tokens": 25,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.cache_creation.input_tokens": 0,
    }
    assert dict(tool.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1.1",
        "gen_ai.conversation.id": session,
    }
    assert run.attributes["gen_ai.usage.input_tokens"] == sum(
        span.attributes["gen_ai.usage.input_tokens"] for span in (first, last)
    )
    assert run.attributes["weft.cost"] > 0
    assert run.resource.attributes["service.name"] == "weft"
    assert seen.sum_metric("gen_ai.client.token.usage", gen_ai__token__type="output", **ABOUT) >= 25
    assert seen.sum_metric("weft.tokens", gen_ai__token__type="cache_read", **ABOUT) == 300
    assert seen.sum_metric("weft.cache.rate", **ABOUT) == 0.75
    assert seen.sum_metric("weft.cost", **ABOUT) == pytest.approx(run.attributes["weft.cost"])
    assert (
        seen.count_measurements("gen_ai.client.operation.duration", gen_ai__operation__name="chat", **ABOUT)
        == 2
    )


async def test_a_child_is_below_the_call_that_started_it() -> None:
    scripts = {"go": [[task_call("look")], [Say(text="So.")]], "look": [[ECHO], [Say(text="found it")]]}
    async with open_subtask_engine(scripts) as engine:
        session = await start(engine)
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    child = ("invoke_agent general", [("step", ["chat test", "execute_tool echo"]), ("step", ["chat test"])])
    assert seen.tree() == [
        (
            "invoke_agent build",
            [("step", ["chat test", ("execute_tool task", [child])]), ("step", ["chat test"])],
        )
    ]
    assert len({span.context.trace_id for span in seen.spans}) == 1


async def test_retries_are_counted_and_marked() -> None:
    script = [Fail(message="busy", status=529, retryable=True, kind="overload")], [Say(text="There.")]
    async with open_engine(*script, skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    chat = seen.span("chat test")
    [mark] = chat.events
    assert (mark.name, dict(mark.attributes)) == ("weft.retry", {"weft.attempt": 1, "error.type": "529"})
    assert chat.status.status_code is StatusCode.UNSET
    assert seen.sum_metric("weft.retries", error__type="529", **ABOUT) == 1


async def test_a_failure_has_its_kind_and_no_content() -> None:
    async with open_engine([Fail(message="no such hidden-words", status=400)], skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    for name in ("chat test", "step", "invoke_agent build"):
        span = seen.span(name)
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "400")
    assert seen.count_measurements("gen_ai.client.operation.duration", error__type="400") == 1
    assert "hidden-words" not in seen.all_text()


def list_usage(span: ReadableSpan) -> dict[str, Any]:
    """Return the tokens and the cost that a span reports."""
    return {
        name: value
        for name, value in (span.attributes or {}).items()
        if name.startswith("gen_ai.usage.") or name == "weft.cost"
    }


async def test_a_refused_request_reports_no_tokens_and_the_run_those_of_the_others() -> None:
    used = Usage(input=100, output=20)
    script = [ECHO, End(reason="tool-calls", usage=used)], [Fail(message="no", status=400)]
    async with open_engine(*script, skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    answered, refused = seen.spans_named("chat test")
    run = list_usage(seen.span("invoke_agent build"))
    assert list_usage(refused) == {}
    assert run.pop("weft.cost") == pytest.approx(seen.sum_metric("weft.cost", **ABOUT))
    assert run == list_usage(answered)
    assert run["gen_ai.usage.input_tokens"] == 100


async def test_an_answer_that_broke_off_has_unknown_tokens_and_an_unknown_cost() -> None:
    used = Usage(input=100, output=20)
    script = [ECHO, End(reason="tool-calls", usage=used)], [Say(text="Well."), Fail(message="no", status=400)]
    async with open_engine(*script, skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    _, broken = seen.spans_named("chat test")
    assert list_usage(broken) == list_usage(seen.span("invoke_agent build")) == {}
    assert seen.sum_metric("weft.tokens", gen_ai__token__type="input", **ABOUT) == 100


async def test_compaction_is_counted_and_its_call_is_labelled() -> None:
    small = replace(MODEL, limit=Limit(context=100_000, output=8_000))
    summariser = AgentInfo(name="compaction", mode="primary", hidden=True, prompt="Sum it up.")
    full = End(usage=Usage(input=95_000, output=100), reason="tool-calls")
    script = (
        [ECHO, full],
        [Say(text="We did x."), End(usage=Usage(input=95_000, output=10))],
        [Say(text="Done.")],
    )
    async with open_engine(*script, model=small, agents=(summariser,)) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    assert seen.sum_metric("weft.compactions") == 1
    summaries = [span for span in seen.spans_named("chat test") if span.attributes.get("weft.summary")]
    assert [span.attributes["gen_ai.agent.name"] for span in summaries] == ["compaction"]
    assert len(seen.spans_named("invoke_agent build")) == 1


async def test_with_content_messages_follow_the_conventions() -> None:
    script = [Say(text="I look."), ECHO], [Say(text="y" * 10_000)]
    async with open_engine(*script, skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with record_telemetry(engine.api.bus, content=True) as seen:
            await engine.api.prompt(session, text_prompt("go"))
    first, last = seen.spans_named("chat test")
    assert json.loads(first.attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "go"}]}
    ]
    assert json.loads(first.attributes["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "call_1.1", "name": "echo", "arguments": '{"words": "x"}'},
            ],
            "finish_reason": "tool-calls",
        }
    ]
    [results] = json.loads(last.attributes["gen_ai.input.messages"])
    assert results["parts"] == [{"type": "tool_call_response", "id": "call_1.1", "result": "x"}]
    [said] = json.loads(last.attributes["gen_ai.output.messages"])
    assert len(said["parts"][0]["content"]) == 4096
    tool = seen.span("execute_tool echo")
    assert (tool.attributes["gen_ai.tool.call.arguments"], tool.attributes["gen_ai.tool.call.result"]) == (
        '{"words": "x"}',
        "x",
    )


class AnyInput(Struct, frozen=True):
    a: str = ""


SECRET = st.text(alphabet="qxz", min_size=8, max_size=12).map(lambda drawn: f"secret{drawn}")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SECRET, min_size=9, max_size=9, unique=True))
async def test_without_content_no_text_of_a_conversation_is_exported(words: list[str]) -> None:
    async def return_secrets(wanted: AnyInput, ctx: ToolContext) -> ToolResult:
        await ctx.report(title=words[3], metadata={"output": words[3]})
        return ToolResult(title=words[3], output=words[4], metadata={"secret": words[4]})

    async def refuse(wanted: AnyInput, ctx: ToolContext) -> ToolResult:
        raise RejectedError(words[5])

    spilling = Tool(name="spill", about="x", takes=AnyInput, run=return_secrets)
    refusing = Tool(name="refuse", about="x", takes=AnyInput, run=refuse)
    scripts = {
        words[0]: [
            [Fail(message=words[6], status=529, retryable=False)],
            [
                Think(text=words[1]),
                Say(text=words[2]),
                UseTool(tool="spill", input={"a": words[3]}),
                task_call(words[7]),
            ],
            [UseTool(tool=words[8], input={"x": words[8]}), UseTool(tool="spill", raw=words[8])],
            [UseTool(tool="refuse", input={"a": words[5]})],
        ],
        words[7]: [[Say(text=words[2])]],
    }
    async with open_subtask_engine(scripts, tools=(spilling, refusing)) as engine:
        session = await start(engine, title=words[1])
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.prompt(session, text_prompt(words[0]))
            await engine.api.prompt(session, text_prompt(words[0]))
    reported = seen.all_text()
    assert seen.spans_named("execute_tool spill")
    assert [word for word in words if word in reported] == []


def run_demo(tmp_path: Path, config: dict[str, object], **env: str) -> subprocess.CompletedProcess[str]:
    make_repository(tmp_path / "project")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    (own / "opencode.json").write_text(json.dumps(config))
    return subprocess.run(
        [WEFT, "run", "-m", "scripted/demo", "let it greet"], cwd=tmp_path / "project", env={**os.environ, **env},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_exports_to_the_configured_endpoint(tmp_path: Path) -> None:
    console = {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "console",
        "OTEL_SERVICE_NAME": "mine",
    }
    ran = run_demo(tmp_path, {"experimental": {"openTelemetry": True}}, **console)
    assert ran.returncode == 0, ran.stderr
    assert '"name": "invoke_agent build"' in ran.stderr
    assert '"service.name": "mine"' in ran.stderr
    assert '"name": "gen_ai.client.token.usage"' in ran.stderr
    assert "let it greet" not in ran.stderr.replace("> let it greet", "")


async def test_a_collector_without_its_package_causes_one_warning() -> None:
    warned: list[ConfigError] = []
    async with open_telemetry(TelemetrySettings(), Bus(), warned.append):
        pass
    [warning] = warned
    assert "pip install opentelemetry-exporter-otlp-proto-http" in str(warning)


async def test_a_missing_extra_causes_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    warned: list[ConfigError] = []
    async with open_telemetry(TelemetrySettings(), Bus(), warned.append):
        pass
    [warning] = warned
    assert "in weft's checkout: pip install '.[otel]'" in str(warning)


class FailingExporter(SpanExporter):
    def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("no such collector")


class HangingExporter(SpanExporter):
    """An exporter that hangs until it is released."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.came_back = False

    def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
        self.came_back = self.gate.wait(60)
        return SpanExportResult.SUCCESS


@pytest.mark.parametrize("exporter", [FailingExporter(), HangingExporter()], ids=["broken", "stuck"])
async def test_a_failing_exporter_neither_fails_nor_delays_a_run(exporter: SpanExporter) -> None:
    reported: list[str] = []
    sink = TelemetryEmitter(Exporters(spans=SafeSpanExporter(exporter, FirstErrorReporter(reported.append))))
    async with open_engine([Say(text="One.")], [Say(text="Two.")], skip_waits=True) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        async with open_follower(engine.api.bus, TelemetryFold(os.urandom), sink):
            for _ in range(2):
                answer = await engine.api.prompt(session, text_prompt("go"))
                assert isinstance(answer.info, AssistantMessage)
                assert answer.info.error is None
    if isinstance(exporter, HangingExporter):
        assert not exporter.came_back
        exporter.gate.set()
    else:
        assert reported == ["OSError: no such collector"]


async def test_an_interrupted_run_is_exported_as_far_as_it_went() -> None:
    async with open_engine([Say(text="Well."), Wait(seconds=60)]) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        events = engine.api.events()
        async with record_telemetry(engine.api.bus) as seen:
            await engine.api.submit(session, text_prompt("go"))
            async for published in events:
                if isinstance(published.event, PartUpdated) and published.event.delta == "Well.":
                    break
        await engine.api.abort(session)
    assert seen.tree() == [("invoke_agent build", [("step", ["chat test"])])]
    assert seen.span("invoke_agent build").attributes["error.type"] == "cut_off"
    assert list_usage(seen.span("chat test")) == list_usage(seen.span("invoke_agent build")) == {}


def test_telemetry_is_on_if_configured_and_never_by_an_untrusted_project(tmp_path: Path) -> None:
    def load_settings(
        said: dict[str, object], *, trusted: bool = True, **env: str
    ) -> TelemetrySettings | None:
        (tmp_path / "opencode.json").write_text(json.dumps({"experimental": said}))
        paths = paths_from(os.environ)
        at = str(tmp_path)
        found = ConfigScope(directory=at, worktree=at, paths=paths, env=os.environ, trusted=trusted)
        return read_telemetry_settings(load_config(found), env)

    on = {"openTelemetry": True}
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    place = {"enabled": True, "content": True, "endpoint": "http://127.0.0.1:4318"}
    assert load_settings({}) is None
    assert load_settings(on) == TelemetrySettings()
    assert load_settings(on, **content) == TelemetrySettings(content=True)
    assert load_settings(on, OTEL_SDK_DISABLED="true") is None
    assert load_settings({"weft": {"telemetry": True}}) == TelemetrySettings()
    assert load_settings({"weft": {"telemetry": place}}) == TelemetrySettings(
        content=True, endpoint="http://127.0.0.1:4318"
    )
    assert load_settings({**on, "weft": {"telemetry": False}}) is None
    assert (
        load_settings({"weft": {"telemetry": {"enabled": True, "content": False}}}, **content)
        == TelemetrySettings()
    )
    assert load_settings(on, trusted=False) is None
    assert load_settings({"weft": {"telemetry": place}}, trusted=False) is None


@pytest.mark.parametrize(
    "said", [{"openTelemetry": True}, {"weft": {"telemetry": True}}], ids=["theirs", "ours"]
)
def test_telemetry_settings_come_from_the_trusted_configuration_only(
    tmp_path: Path, said: dict[str, object]
) -> None:
    (tmp_path / "opencode.json").write_text(json.dumps({"experimental": said}))
    at = str(tmp_path)
    trusted, untrusted = (
        load_config(
            ConfigScope(
                directory=at, worktree=at, paths=paths_from(os.environ), env=os.environ, trusted=trust
            )
        )
        for trust in (True, False)
    )
    assert read_telemetry_settings(trusted, {}) == TelemetrySettings()
    assert read_telemetry_settings(replace(untrusted, config=trusted.config), {}) is None
