"""AWS credentials and region, from every source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from weft.errors import InvalidInputError, ProviderAuthError
from weft.provider.catalog.access import Access
from weft.provider.catalog.credentials import ProviderKey, StoredLogin
from weft.provider.catalog.models import Catalogue
from weft.provider.catalog.offers import OfferSources, ProviderOffer, ProviderOffers
from weft.provider.endpoint import AwsKeys

CONFIG = """
[default]
region = eu-north-1

[profile work]
region=ap-south-1
s3 =
    max_concurrent_requests = 20
[profile signed-in]
sso_session = corp
"""
CREDENTIALS = """
# ours
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = default-secret

[work]
aws_access_key_id=AKIAWORK
aws_secret_access_key = work=secret
aws_session_token = lent
"""
ENV = {
    "AWS_ACCESS_KEY_ID": "AKIAENV",
    "AWS_SECRET_ACCESS_KEY": "env-secret",
    "AWS_SESSION_TOKEN": "env-token",
}
SHELF = {
    "env": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_BEARER_TOKEN_BEDROCK"],
    "npm": "@ai-sdk/amazon-bedrock",
    "models": {"amazon.nova-pro-v1:0": {}},
}


@pytest.fixture
def home(tmp_path: Path) -> str:
    kept = tmp_path / ".aws"
    kept.mkdir()
    (kept / "config").write_text(CONFIG)
    (kept / "credentials").write_text(CREDENTIALS)
    return str(tmp_path)


def offer(
    env: Mapping[str, str],
    options: dict[str, Any] | None = None,
    logins: Mapping[str, StoredLogin] | None = None,
) -> ProviderOffer:
    known = {"amazon-bedrock": Raw(msgspec.json.encode(SHELF))}
    found = ProviderOffers(
        OfferSources(
            catalogue=Catalogue(lambda: known),
            warn=pytest.fail,
            configured={"amazon-bedrock": {"options": options}} if options is not None else {},
            env=env,
            logins=logins or {},
        )
    ).find("amazon-bedrock")
    assert found is not None
    return found


def access(
    env: Mapping[str, str],
    options: dict[str, Any] | None = None,
    logins: Mapping[str, StoredLogin] | None = None,
) -> Access:
    found = offer(env, options, logins)
    model = found.find("amazon.nova-pro-v1:0")
    assert model is not None
    return found.get_access(model)


def keys(env: Mapping[str, str], options: dict[str, Any] | None = None) -> AwsKeys:
    signer = access(env, options).aws
    assert signer is not None
    return signer()


def test_keys_come_from_the_environment_a_profile_or_the_configuration(home: str) -> None:
    work = AwsKeys(id="AKIAWORK", secret="work=secret", token="lent")
    assert keys({**ENV, "HOME": home}) == AwsKeys(id="AKIAENV", secret="env-secret", token="env-token")
    assert keys({"HOME": home, "AWS_PROFILE": "work"}) == work
    assert keys({**ENV, "HOME": home}, {"profile": "work"}) == work
    assert keys({"HOME": home}, {}) == AwsKeys(id="AKIADEFAULT", secret="default-secret")
    given_keys = {"accessKeyId": "AKIATOLD", "secretAccessKey": "told"}
    assert keys({**ENV, "HOME": home}, given_keys) == AwsKeys(id="AKIATOLD", secret="told")


def test_credential_files_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(CREDENTIALS)
    env = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"), "AWS_PROFILE": "work"}
    assert keys(env).id == "AKIAWORK"


def test_renewed_keys_are_found(home: str) -> None:
    signer = access({"HOME": home, "AWS_PROFILE": "work"}).aws
    assert signer is not None
    before = signer()
    Path(home, ".aws", "credentials").write_text(CREDENTIALS.replace("lent", "lent again"))
    assert (before.token, signer().token) == ("lent", "lent again")


def test_a_bearer_token_of_bedrock_has_precedence() -> None:
    env = {**ENV, "AWS_BEARER_TOKEN_BEDROCK": " token "}
    bearer = ProviderKey(secret="token", source="environment", variable="AWS_BEARER_TOKEN_BEDROCK")
    assert access(env).key == bearer
    login = {"amazon-bedrock": StoredLogin(provider="amazon-bedrock", type="api", secret="stored")}
    assert access({}, None, login).key == ProviderKey(secret="stored", source="stored")
    assert access(ENV).key == ProviderKey(secret="", source="environment", variable="AWS_ACCESS_KEY_ID")


def test_keys_for_all_of_aws_make_it_available_but_a_file_alone_does_not(home: str) -> None:
    assert [
        offer(env, options).available
        for env, options in (
            ({"HOME": home}, None),
            ({"HOME": home, "AWS_PROFILE": "work"}, None),
            (ENV, None),
            ({}, {}),
        )
    ] == [False, True, True, True]


def test_the_region_comes_from_the_configuration_the_environment_or_the_profile(home: str) -> None:
    env = {"HOME": home, "AWS_PROFILE": "work", "AWS_REGION": "eu-west-1"}
    urls = [
        access(env, {"region": "us-west-2"}).url,
        access(env).url,
        access({"HOME": home, "AWS_PROFILE": "work"}).url,
        access({**ENV, "AWS_DEFAULT_REGION": "eu-west-3"}).url,
        access(ENV).url,
    ]
    regions = ("us-west-2", "eu-west-1", "ap-south-1", "eu-west-3", "us-east-1")
    assert urls == [f"https://bedrock-runtime.{region}.amazonaws.com" for region in regions]
    assert access(env, {"endpoint": "https://vpce.test", "region": "us-west-2"}).options == {
        "region": "us-west-2"
    }


def test_a_region_that_is_not_a_plain_name_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"options\.region"):
        access(ENV, {"region": "evil.test/?"})


def test_the_error_for_missing_keys_names_what_to_set(home: str) -> None:
    with pytest.raises(ProviderAuthError) as caught:
        access({})
    assert str(caught.value) == (
        "no key: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
        "or run: weft auth login amazon-bedrock"
    )
    with pytest.raises(ProviderAuthError, match=r"no keys in the profile 'nobody': set AWS_BEARER_TOKEN"):
        keys({"HOME": home, "AWS_PROFILE": "nobody"})
    with pytest.raises(ProviderAuthError, match=r"aws configure export-credentials --profile signed-in"):
        keys({"HOME": home, "AWS_PROFILE": "signed-in"})


def test_a_project_cannot_configure_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.chdir(home)
    with pytest.raises(ProviderAuthError):
        keys({"AWS_PROFILE": "work"})


def test_keys_are_never_shown() -> None:
    given_keys = access(ENV, {"accessKeyId": "AKIATOLD", "secretAccessKey": "told"})
    assert not any(word in repr(given_keys) for word in ("AKIATOLD", "told", "env-secret"))
