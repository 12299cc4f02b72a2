"""The id of a model in a region."""

import pytest

from weft.provider.catalog.aws import add_region_prefix

CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.mark.parametrize(
    ("id", "region", "placed"),
    [
        (CLAUDE, "us-east-1", f"us.{CLAUDE}"),
        (CLAUDE, "us-gov-west-1", CLAUDE),
        (CLAUDE, "eu-west-1", f"eu.{CLAUDE}"),
        (CLAUDE, "eu-central-2", CLAUDE),
        (CLAUDE, "ap-northeast-1", f"jp.{CLAUDE}"),
        (CLAUDE, "ap-southeast-2", f"au.{CLAUDE}"),
        (CLAUDE, "ap-south-1", f"apac.{CLAUDE}"),
        (CLAUDE, "ca-central-1", CLAUDE),
        ("anthropic.claude-opus-4-1", "ap-southeast-2", "apac.anthropic.claude-opus-4-1"),
        ("amazon.nova-pro-v1:0", "us-west-2", "us.amazon.nova-pro-v1:0"),
        ("amazon.nova-pro-v1:0", "eu-west-1", "amazon.nova-pro-v1:0"),
        ("meta.llama3-1-8b", "eu-west-1", "eu.meta.llama3-1-8b"),
        ("qwen.qwen3-32b-v1:0", "us-east-1", "qwen.qwen3-32b-v1:0"),
        (f"global.{CLAUDE}", "us-east-1", f"global.{CLAUDE}"),
        (f"eu.{CLAUDE}", "us-east-1", f"eu.{CLAUDE}"),
        ("arn:aws:bedrock:us-east-1:1:claude", "us-east-1", "arn:aws:bedrock:us-east-1:1:claude"),
    ],
)
def test_a_cross_region_model_gets_the_prefix_of_its_regions(id: str, region: str, placed: str) -> None:
    assert add_region_prefix(id, region) == placed
