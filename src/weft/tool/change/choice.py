"""Which models change files with patches, and which with `edit` and `write` (pure)."""

from weft.tool.about import about
from weft.tool.contract import Audience


def patches(api_id: str) -> bool:
    """Whether a model was brought up on patches: OpenAI's own, but not those before, nor those given away."""
    return "gpt-" in api_id and "oss" not in api_id and "gpt-4" not in api_id


def to_patchers(audience: Audience) -> str | None:
    return about("apply_patch") if patches(audience.api_id) else None


def edit_to_others(audience: Audience) -> str | None:
    return None if patches(audience.api_id) else about("edit")


def write_to_others(audience: Audience) -> str | None:
    return None if patches(audience.api_id) else about("write")
