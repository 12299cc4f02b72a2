"""A session with markup that tries to execute in the browser, in every place that a page shows."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from given.session_exports import AT, export
from weft.model.failure import unknown_failure
from weft.model.ids import PartID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AgentPart,
    AnyPart,
    CallTime,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    RunningState,
    Span,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.model.transfer import SessionExport

# Title, prompt, file name and kind, agent, task (three), heading, item, code, thought, input, output, title and error of
# calls, name of a tool, failure.
PLACES = 18


def attempts(elsewhere: str) -> Mapping[str, str]:
    """Return markup that would execute. Each requests its own name from `elsewhere`; scripts also set `ran`."""

    def act(name: str) -> str:
        return f"ran=1;fetch('{elsewhere}/{name}')"

    return {
        "script": f"<script>{act('script')}</script>",
        "error": f'<img src=x: onerror="{act("error")}">',
        "svg": f'<svg onload="{act("svg")}"></svg>',
        "focus": f'<input autofocus onfocus="{act("focus")}">',
        "picture": f"<img src='{elsewhere}/picture'>",
        "import": f"<style>@import '{elsewhere}/import';</style>",
        "look": f"<p style='background:url({elsewhere}/look)'>x</p>",
        "sheet": f"<link rel=stylesheet href='{elsewhere}/sheet'>",
        "frame": f"<iframe src='{elsewhere}/frame'></iframe>",
        "within": f'<iframe srcdoc="<script>{act("within")}</script>"></iframe>',
        "object": f"<object data='{elsewhere}/object'></object>",
        "refresh": f"<meta http-equiv=refresh content='0;url={elsewhere}/refresh'>",
    }


def make_breakouts(elsewhere: str) -> str:
    """Return closing tags for every possible context, followed by all attempts."""
    ends = "</title></style></script></noscript></textarea></pre></code></p></details></main>-->]]>\"'>"
    return ends + "".join(attempts(elsewhere).values())


def hostile_session(elsewhere: str) -> SessionExport:
    """Return a session whose page must show the attempts as text `PLACES` times."""
    bad = make_breakouts(elsewhere)
    made = export()
    first, second = made.messages
    prompt, answer = first.info, second.info
    assert isinstance(answer, AssistantMessage)
    asked = (
        _part(TextPart, first, 1, text=bad),
        _part(FilePart, first, 2, mime=bad, filename=bad, url=f"data:image/svg+xml,{bad}"),
        _part(
            FilePart, first, 3, mime="image/png", filename="a.png", url=f'data:image/png;base64,AAAA"{bad}'
        ),
        _part(AgentPart, first, 4, name=bad),
        _part(SubtaskPart, first, 5, prompt=bad, description=bad, agent=bad),
    )
    links = "[one](javascript:ran=1) [two](data:text/html,<script>ran=1</script>) [three](//evil.test)"
    markdown = f"{links}\n\n# {bad}\n\n- {bad}\n\n```html\n{bad}\n```"
    answered = (
        _part(TextPart, second, 11, text=markdown, time=Span(start=AT, end=AT)),
        _part(ReasoningPart, second, 12, text=bad, time=Span(start=AT, end=AT)),
        *_calls(second, bad),
    )
    failed = replace(answer, error=unknown_failure(bad))
    return replace(
        made,
        info=replace(made.info, title=bad),
        messages=(
            MessageWithParts(info=prompt, parts=asked),
            MessageWithParts(info=failed, parts=answered),
        ),
    )


def _calls(message: MessageWithParts, bad: str) -> tuple[AnyPart, ...]:
    time = CallTime(start=AT, end=AT)
    file = _part(FilePart, message, 20, mime="image/svg+xml", filename="x", url=f"data:image/svg+xml,{bad}")
    done = CompletedState(
        input={"a": bad}, output=bad, title=bad, metadata={}, time=time, attachments=(file,)
    )
    failed = ErrorState(input={}, error=bad, time=time)
    under_way = RunningState(input={}, title="t", time=Span(start=AT))
    return tuple(
        _part(ToolPart, message, 21 + number, call_id=f"call_{number}", tool=tool, state=state)
        for number, (tool, state) in enumerate([("done", done), ("failed", failed), (bad, under_way)])
    )


def _part(kind: Any, message: MessageWithParts, number: int, **more: Any) -> Any:
    ids = {"session_id": message.info.session_id, "message_id": message.info.id}
    return kind(id=PartID(f"prt_{number:026}"), **ids, **more)
