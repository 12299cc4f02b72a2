"""What credentials look like: shapes that give themselves away, and names that say what stands beside them.

A shape must be unmistakable, for code is full of long strings: it has a prefix nobody uses by chance, or it is a key in
armour. Everything else is a secret only in the company of a name.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD = r"[A-Za-z0-9_-]"


class Shape(NamedTuple):
    """`marks` are what the pattern cannot match without: looking for them is much faster than matching."""

    kind: str
    marks: tuple[str, ...]
    pattern: str


SHAPES = (
    Shape("private-key", ("-----BEGIN",), r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----[\s\S]{16,16384}?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    # Cut off before its end, it is a key all the same.
    Shape("private-key", ("-----BEGIN",), r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\\[rn]|[\sA-Za-z0-9+/=:,-]){32,}"),
    Shape("private-key", ("AGE-SECRET-KEY",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    Shape("anthropic-key", ("sk-ant-",), rf"sk-ant-{_WORD}{{16,}}"),
    Shape("openrouter-key", ("sk-or-",), r"sk-or-(?:v\d-)?[0-9a-f]{32,}"),
    Shape("openai-key", ("sk-", "sess-"), rf"(?:sk|sess)-(?:proj-|svcacct-|admin-|None-)?(?=[A-Za-z_-]*\d){_WORD}{{20,}}"),
    Shape("aws-key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"),
    Shape("github-token", ("gh",), r"gh[pousr]_[A-Za-z0-9]{20,}"),
    Shape("github-token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}"),
    Shape("gitlab-token", ("gl",), rf"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-{_WORD}{{20,}}"),
    Shape("google-key", ("AIza",), rf"AIza{_WORD}{{35}}"),
    Shape("google-token", ("ya29.",), rf"ya29\.{_WORD}{{20,}}"),
    Shape("google-secret", ("GOCSPX-",), rf"GOCSPX-{_WORD}{{20,}}"),
    Shape("slack-token", ("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    Shape("slack-token", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{20,}"),
    Shape("slack-webhook", ("hooks.slack.com",), r"(?<=hooks\.slack\.com/services/)T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{16,}"),
    Shape("discord-webhook", ("/api/webhooks/",), rf"(?<=/api/webhooks/)\d{{15,}}/{_WORD}{{40,}}"),
    Shape("discord-token", (".",), rf"[MNO]{_WORD}{{23,27}}\.{_WORD}{{6}}\.{_WORD}{{27,}}"),
    Shape("telegram-token", (":AA",), rf"\d{{8,10}}:AA{_WORD}{{33}}"),
    Shape("stripe-key", ("k_live_", "k_test_"), r"(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}"),
    Shape("webhook-secret", ("whsec_",), r"whsec_[A-Za-z0-9+/]{20,}=*"),
    Shape("twilio-key", ("SK",), r"SK[0-9a-f]{32}"),
    Shape("sendgrid-key", ("SG.",), rf"SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}"),
    Shape("mailgun-key", ("key-",), r"key-[0-9a-f]{32}"),
    Shape("mailchimp-key", ("-us",), r"[0-9a-f]{32}-us\d{1,2}"),
    Shape("npm-token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    Shape("pypi-token", ("pypi-",), rf"pypi-{_WORD}{{50,}}"),
    Shape("rubygems-key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    Shape("docker-token", ("dckr_pat_",), rf"dckr_pat_{_WORD}{{20,}}"),
    Shape("huggingface-token", ("hf_",), r"hf_[A-Za-z0-9]{30,}"),
    Shape("replicate-token", ("r8_",), r"r8_[A-Za-z0-9]{30,}"),
    Shape("groq-key", ("gsk_",), r"gsk_[A-Za-z0-9]{20,}"),
    Shape("xai-key", ("xai-",), r"xai-[A-Za-z0-9]{20,}"),
    Shape("perplexity-key", ("pplx-",), r"pplx-[A-Za-z0-9]{20,}"),
    Shape("cerebras-key", ("csk-",), r"csk-[a-z0-9]{20,}"),
    Shape("fireworks-key", ("fw_",), r"fw_[A-Za-z0-9]{20,}"),
    Shape("digitalocean-token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64}"),
    Shape("shopify-token", ("shp",), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    Shape("square-token", ("sq0",), rf"sq0(?:atp|csp|idp)-{_WORD}{{22,}}"),
    Shape("databricks-token", ("dapi",), r"dapi[0-9a-f]{32}"),
    Shape("linear-key", ("lin_",), r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    Shape("notion-token", ("ntn_", "secret_"), r"(?:ntn|secret)_[A-Za-z0-9]{40,}"),
    Shape("figma-token", ("figd_",), rf"figd_{_WORD}{{30,}}"),
    Shape("planetscale-token", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,}"),
    Shape("doppler-token", ("dp.",), r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{30,}"),
    Shape("vault-token", ("hv",), rf"hv[sbr]\.{_WORD}{{20,}}"),
    Shape("terraform-token", (".atlasv1.",), rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,}}"),
    Shape("grafana-token", ("glsa_", "glc_"), r"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,}"),
    Shape("newrelic-key", ("NR",), r"NR(?:AK|JS|RA|II)-[A-Z0-9a-z]{19,}"),
    Shape("sentry-token", ("sntry",), r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    Shape("postman-key", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    Shape("atlassian-token", ("ATATT3",), rf"ATATT3{_WORD}{{30,}}(?:=[0-9A-F]{{8}})?"),
    Shape("bitbucket-password", ("ATBB",), r"ATBB[A-Za-z0-9]{24,}"),
    Shape("airtable-token", ("pat",), r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Shape("supabase-key", ("sbp_", "sbs_", "sb_"), r"sb(?:p|s|_secret|_publishable)_[A-Za-z0-9_-]{30,}"),
    Shape("tailscale-key", ("tskey-",), r"tskey-[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]{16,}"),
    Shape("heroku-key", ("HRKU-",), rf"HRKU-{_WORD}{{30,}}"),
    Shape("flyio-token", ("fo1_",), r"fo1_[A-Za-z0-9_-]{30,}"),
    Shape("cloudflare-key", ("v1.0-",), r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}"),
    Shape("netlify-token", ("nfp_",), r"nfp_[A-Za-z0-9]{36,}"),
    Shape("pinecone-key", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{40,}"),
    Shape("langsmith-key", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    Shape("onepassword-token", ("ops_eyJ",), rf"ops_eyJ{_WORD}{{100,}}"),
    Shape("facebook-token", ("EAA",), r"EAA[A-Za-z0-9]{80,}"),
    Shape("mapbox-token", ("sk.eyJ",), rf"sk\.eyJ{_WORD}{{20,}}\.{_WORD}{{20,}}"),
    Shape("resend-key", ("re_",), r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
    Shape("neon-key", ("napi_",), r"napi_[A-Za-z0-9]{40,}"),
    Shape("vercel-token", ("vercel_blob_rw_",), r"vercel_blob_rw_[A-Za-z0-9]{8,}_[A-Za-z0-9]{20,}"),
    Shape("dropbox-token", ("sl.",), rf"sl\.{_WORD}{{100,}}"),
    Shape("google-token", ("1//0",), rf"1//0{_WORD}{{40,}}"),
    Shape("jwt", ("eyJ",), rf"eyJ{_WORD}{{8,}}\.eyJ{_WORD}{{8,}}\.{_WORD}{{8,}}"),
)  # fmt: skip

# Letters or digits in front or behind make it part of a longer word; an escaped newline in front of it does not.
_EDGE, _EDGE_AFTER = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))", r"(?![A-Za-z0-9])"
ARMOUR = "-----BEGIN"
_PATTERNS = [(shape, re.compile(f"{_EDGE}{shape.pattern}{_EDGE_AFTER}")) for shape in SHAPES]
_ARMOURED = [each for each in _PATTERNS if ARMOUR in each[0].marks]
_COMPACT = [each for each in _PATTERNS if ARMOUR not in each[0].marks]
# Most words hold no mark at all: one look tells.
_MARKED = re.compile("|".join(sorted({re.escape(mark) for shape, _ in _COMPACT for mark in shape.marks})))
# Only long words are looked at closely: text has few of them.
LONG_WORD = re.compile(r"[A-Za-z0-9_+/=.:-]{16,}")


class Span(NamedTuple):
    """Where in a text a secret stands, and of what kind it is."""

    start: int
    end: int
    kind: str


def find_shapes(text: str) -> Iterator[Span]:
    """The credentials that give themselves away. They may overlap."""
    if ARMOUR in text:
        yield from _find(_ARMOURED, text, 0, len(text))
    for word in LONG_WORD.finditer(text):
        said = word[0]
        if _MARKED.search(said) is None:
            continue
        meant = [each for each in _COMPACT if any(mark in said for mark in each[0].marks)]
        yield from _find(meant, text, word.start(), word.end())


def _find(patterns: list[tuple[Shape, re.Pattern[str]]], text: str, start: int, end: int) -> Iterator[Span]:
    for shape, pattern in patterns:
        for found in pattern.finditer(text, start, end):
            yield Span(*found.span(), shape.kind)
