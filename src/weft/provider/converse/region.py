"""Where in the world a model of Amazon's is asked: the region, and the name a model goes by there (pure)."""

from typing import Final

DEFAULT_REGION: Final = "us-east-1"
# Names that say already which regions may answer; and ARNs, which say it all.
PLACED: Final = ("global.", "us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "sa.", "arn:")
AMERICAN: Final = ("nova-micro", "nova-lite", "nova-pro", "nova-premier", "nova-2", "claude", "deepseek")
EUROPEAN: Final = ("claude", "nova-lite", "nova-micro", "llama3", "pixtral")
ASIAN: Final = ("claude", "nova-lite", "nova-micro", "nova-pro")
AUSTRALIAN: Final = ("anthropic.claude-sonnet-4-5", "anthropic.claude-haiku")
EUROPE: Final = (
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eu-north-1",
    "eu-central-1",
    "eu-south-1",
    "eu-south-2",
)
AUSTRALIA: Final = ("ap-southeast-2", "ap-southeast-4")
TOKYO: Final = "ap-northeast-1"


def placed_id(id: str, region: str) -> str:
    """A model's id with the prefix of the regions that share it, where it is served only so."""
    if id.startswith(PLACED):
        return id
    prefix = _prefix(id, region)
    return f"{prefix}.{id}" if prefix else id


def _prefix(id: str, region: str) -> str:
    if region.startswith("us-") and not region.startswith("us-gov"):
        return "us" if _names(id, AMERICAN) else ""
    if region in EUROPE:
        return "eu" if _names(id, EUROPEAN) else ""
    if not region.startswith("ap-"):
        return ""
    if region in AUSTRALIA and _names(id, AUSTRALIAN):
        return "au"
    if not _names(id, ASIAN):
        return ""
    return "jp" if region == TOKYO else "apac"


def _names(id: str, families: tuple[str, ...]) -> bool:
    return any(family in id for family in families)
