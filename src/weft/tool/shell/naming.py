"""How the rules are asked about a command, and what a lasting yes to it covers."""

import os
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from weft.tool.shell.field import Field, Reading, has_hole, names, spelled, split
from weft.tool.shell.scene import Part

# Programs whose second word says what they do, and those where a third one does.
_TWO = """
apt apt-get brew bun bundle cargo choco composer conda consul dart deno direnv docker docker-compose dnf dotnet eksctl
elixir firebase flutter gem git go gradle gradlew heroku helm ip java just kind kubectl lerna make mc minikube mix mise
mvn mvnw mysql netlify next node npm npx nx openssl oc pacman pdm php pip pip3 pipenv pipx pnpm podman poetry psql pulumi
pyenv python python3 rails rake rbenv redis-cli ruby rustup sbt sfdx skaffold snap sqlite3 ssh swift systemctl tach
task terraform tox turbo uv vagrant vault vercel vite volta wrangler xcodebuild xcrun yarn zig
"""
_THREE = """
aws az gcloud gh doctl sfdx glab linode-cli
"""
_DEEPER = """
git config remote stash submodule worktree bisect notes
npm run exec init view config run-script
pnpm run dlx exec config
yarn run dlx workspace config
bun run x pm
docker compose container image network volume builder buildx system context
podman container image network volume pod
docker-compose run exec
cargo add run make nextest
deno task
uv run pip tool
poetry run env
go mod tool work
ip addr link netns route
kubectl rollout kustomize config create
openssl req x509
pulumi stack
terraform workspace state
vault auth kv
consul kv
eksctl create
kind create
mc admin
helm repo
gem sources
rails db
"""
_VERBS: Final = frozenset(_TWO.split()) | frozenset(_THREE.split())
_SECOND_VERBS: Final = frozenset(_THREE.split())
_SECOND: Final = {
    (words[0], verb)
    for line in _DEEPER.strip().splitlines()
    for words in [line.split()]
    for verb in words[1:]
}
_WORD: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_VERB: Final = re.compile(r"[A-Za-z@./][A-Za-z0-9:@_./-]*")
# With these, the beginning says nothing of what is done.
_OPEN_ENDED = """
bash sh dash zsh ksh fish env eval exec command builtin xargs sudo doas su time timeout nice nohup setsid stdbuf parallel
watch find ssh perl awk gawk sed dd curl wget tee nc ncat socat source .
"""
_WHOLE: Final = frozenset(_OPEN_ENDED.split())


def prefix(words: list[str]) -> list[str]:
    """The words that name what a command does."""
    count = 1
    if words and words[0] in _VERBS:
        deeper = words[0] in _SECOND_VERBS or tuple(words[:2]) in _SECOND
        count = 3 if deeper else 2
    return words[:count]


def lasting(words: list[str]) -> str:
    """The pattern that a lasting yes to this command allows: its beginning where that says enough, else just itself.

    With the blank before the star, unlike OpenCode's: `ls *` is not `lsof`. Empty where nothing can be granted for long:
    a star in the command, or a variable, would allow what is quite different.
    """
    if not words:
        return ""
    beginning = prefix(words)
    plain = all(_WORD.fullmatch(word) for word in beginning) and all(
        _VERB.fullmatch(word) for word in beginning[1:]
    )
    if plain and words[0] not in _WHOLE and "=" not in words[0]:
        return " ".join(beginning) + " *"
    whole = " ".join(words)
    return whole if set(whole).isdisjoint("*?$`") else ""


# Going somewhere is judged by where, not as a command. The same in OpenCode.
_UNASKED: Final = frozenset({"cd", ""})
MOST_PERHAPS: Final = 12
_STARTS: Final = re.compile(r"[A-Za-z_]")
# Options that may stand between a program and its verb, and take a value.
_GLOBAL: Final = {
    "docker": names("-H --host -c --context --config -l --log-level"),
    "podman": names("-c --connection --url --log-level"),
    "kubectl": names("-n --namespace --context --kubeconfig --cluster --user -s --server"),
    "helm": names("-n --namespace --kube-context --kubeconfig"),
    "npm": names("--prefix -C -w --workspace"),
    "pnpm": names("-C --dir --filter -F"),
    "yarn": names("--cwd"),
    "cargo": names("--config -C --color"),
    "go": names("-C"),
    "gh": names("-R --repo"),
    "aws": names("--profile --region --output"),
    "systemctl": names("-H --host -M --machine"),
    "terraform": names(""),
}


class Word(Struct, frozen=True):
    """A field, and how it was written."""

    field: Field
    source: str


def name_line(line: list[Word]) -> list[Part]:
    """What the rules are asked about a command that a person could have typed."""
    written = [
        Field(word.source) if word.field.listing is None and not has_hole(word.field.text) else word.field
        for word in line
    ]
    meant = [
        word.field if word.field.text and not any(char.isspace() for char in word.field.text) else shown
        for word, shown in zip(line, written, strict=True)
    ]
    return name_argv(tuple(written), tuple(meant))


def name_argv(*ways: Reading) -> list[Part]:
    """A part for each way in which a command may be known to the rules."""
    spellings = dict.fromkeys(spelling for fields in ways for spelling in _spellings(fields))
    return [_to_part(fields) for fields in spellings if fields[0].text not in _UNASKED]


def name_perhaps(argv: Reading) -> list[Part]:
    """The commands that a program may run which nobody knows: each end of its words, and each word that is a line."""
    texts = [field.text for field in argv]
    first = max(1, len(prefix(texts)))
    lines = [*_ends(texts[first:])]
    for text in texts[1:]:
        if " " in text:
            lines += _ends((text.partition("=")[2] if text.startswith("-") else text).split())
    return [Part(permission="bash", pattern=line, perhaps=True) for line in lines if _STARTS.match(line)]


def _ends(words: list[str]) -> Iterator[str]:
    for place in range(min(len(words), MOST_PERHAPS)):
        yield " ".join((os.path.basename(words[place]), *words[place + 1 :]))


def _spellings(fields: Reading) -> Iterator[Reading]:
    """By its path and by its bare name; and without what stands before its verb."""
    yield fields
    name = fields[0].text
    if "/" in name:
        name = os.path.basename(name)
        yield (Field(name), *fields[1:])
    if name in _GLOBAL and len(fields) > 1 and fields[1].text.startswith("-"):
        yield (Field(name), *split(fields[1:], _GLOBAL[name], until_word=True).words)


def _to_part(fields: Reading) -> Part:
    known = not any(has_hole(field.text) for field in fields)
    always = lasting([field.text for field in fields]) if known else ""
    return Part(permission="bash", pattern=spelled(fields), always=always)
