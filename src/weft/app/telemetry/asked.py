"""Whether telemetry is asked for, and what of it. Of a project that nobody has vouched for nothing is heard here."""

from collections.abc import Mapping

from msgspec import Struct

from weft.config.load import Loaded
from weft.config.schema import Experimental, Own, Telemetry

YES = ("1", "true")


class Asked(Struct, frozen=True, kw_only=True):
    """`content`: what is said is recorded, too. Without an `endpoint` the environment says where it goes."""

    content: bool = False
    endpoint: str | None = None


def read_telemetry(loaded: Loaded, env: Mapping[str, str]) -> Asked | None:
    """None if nobody asks for it. OpenCode's own switch is `experimental.openTelemetry`."""
    experimental = loaded.vouched.experimental or Experimental()
    said = (experimental.weft or Own()).telemetry
    if isinstance(said, bool):
        said = Telemetry(enabled=said)
    said = said or Telemetry()
    enabled = said.enabled if said.enabled is not None else experimental.open_telemetry is True
    if not enabled or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    content = said.content
    if content is None:
        content = env.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() in YES
    return Asked(content=content, endpoint=said.endpoint)
