"""Our request signature equals that of Amazon's own library."""

import pytest

from weft.provider.bedrock.adapter import sign_request
from weft.provider.endpoint import AwsKeys

AT = 1_772_600_767_891  # 2026-03-04 05:06:07 UTC
KEYS = AwsKeys(id="AKIDEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0"
PROFILE = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fx"


# Made with botocore 1.44.0.
@pytest.mark.parametrize(
    ("url", "body", "token", "region", "signature"),
    [
        (
            f"https://bedrock-runtime.eu-west-1.amazonaws.com/model/{CLAUDE}/converse-stream",
            b'{"messages":[]}',
            "",
            "eu-west-1",
            "d0df93d2da8f282f0d206d41ba9d798be30c577050ea7a4aea1136cb085f3511",
        ),
        (
            f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{PROFILE}/converse-stream",
            "é".encode(),
            "tok/en+==",
            "us-east-1",
            "9fcb22c77436a39fbe3146a52c5bf3bc10d8f23e2405380dacf144845d1f3188",
        ),
        (
            "http://127.0.0.1:8080/v1/model/amazon.nova-pro-v1%3A0/converse-stream",
            b"",
            "t",
            "us-east-1",
            "a579d600d075bd43b2d75414006c35f126fd075ac071f7331bc2d2b83faee705",
        ),
    ],
)
def test_the_signature_matches_that_of_amazon(
    url: str, body: bytes, token: str, region: str, signature: str
) -> None:
    keys = AwsKeys(id=KEYS.id, secret=KEYS.secret, token=token)
    names = "host;x-amz-date" + (";x-amz-security-token" if token else "")
    assert sign_request(url, body, keys, region, AT) == {
        "host": url.split("/")[2],
        "x-amz-date": "20260304T050607Z",
        **({"x-amz-security-token": token} if token else {}),
        "authorization": f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260304/{region}/bedrock/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}",
    }


def test_keys_are_never_shown() -> None:
    assert "wJalr" not in repr(KEYS)
