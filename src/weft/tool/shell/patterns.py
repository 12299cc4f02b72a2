"""The patterns under which the rules are asked about a command, and the pattern that an "always" reply allows."""

import os
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from weft.model.permission import has_hole
from weft.tool.shell.arguments import Field, Fields, join_fields, parse_arguments, split_names
from weft.tool.shell.state import ShellAction

# Programs whose second word is a subcommand that says what they do.
_TWO_WORD_PROGRAMS = """
apt apt-get brew bun bundle cargo choco composer conda consul dart deno direnv docker docker-compose dnf dotnet eksctl
elixir firebase flutter gem git go gradle gradlew heroku helm ip java just kind kubectl lerna make mc minikube mix mise
mvn mvnw mysql netlify next node npm npx nx openssl oc pacman pdm php pip pip3 pipenv pipx pnpm podman poetry psql pulumi
pyenv python python3 rails rake rbenv redis-cli ruby rustup sbt sfdx skaffold snap sqlite3 ssh swift systemctl tach
task terraform tox turbo uv vagrant vault vercel vite volta wrangler xcodebuild xcrun yarn zig
"""
# Programs whose second and third word together say what they do.
_THREE_WORD_PROGRAMS = """
aws az gcloud gh doctl sfdx glab linode-cli
"""
# Each line: a program, and its subcommands that have a subcommand in turn.
_THREE_WORD_SUBCOMMANDS = """
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
_WITH_SUBCOMMAND: Final = frozenset(_TWO_WORD_PROGRAMS.split()) | frozenset(_THREE_WORD_PROGRAMS.split())
_WITH_NESTED_SUBCOMMAND: Final = frozenset(_THREE_WORD_PROGRAMS.split())
_NESTING_SUBCOMMANDS: Final = {
    (words[0], verb)
    for line in _THREE_WORD_SUBCOMMANDS.strip().splitlines()
    for words in [line.split()]
    for verb in words[1:]
}
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_PLAIN_SUBCOMMAND: Final = re.compile(r"[A-Za-z@./][A-Za-z0-9:@_./-]*")
# What these programs do depends on all of their arguments, so an "always" reply allows the whole command only.
_OPEN_ENDED_PROGRAM_NAMES = """
bash sh dash zsh ksh fish env eval exec command builtin xargs sudo doas su time timeout nice nohup setsid stdbuf parallel
watch find ssh perl awk gawk sed dd curl wget tee nc ncat socat source .
"""
_OPEN_ENDED_PROGRAMS: Final = frozenset(_OPEN_ENDED_PROGRAM_NAMES.split())


def find_prefix(words: list[str]) -> list[str]:
    """Return the first words of a command, which say what it does."""
    count = 1
    if words and words[0] in _WITH_SUBCOMMAND:
        is_nested = words[0] in _WITH_NESTED_SUBCOMMAND or tuple(words[:2]) in _NESTING_SUBCOMMANDS
        count = 3 if is_nested else 2
    return words[:count]


def to_always_pattern(words: list[str]) -> str:
    """Return the pattern that an "always" reply to this command allows.

    This is its prefix if that says enough, else the whole command. There is a blank before the star, unlike in
    OpenCode: `ls *` does not match `lsof`. Return "" if no pattern is safe: a star or a variable in the command would
    allow quite different commands.
    """
    if not words:
        return ""
    prefix = find_prefix(words)
    is_plain = all(_PLAIN_WORD.fullmatch(word) for word in prefix) and all(
        _PLAIN_SUBCOMMAND.fullmatch(word) for word in prefix[1:]
    )
    if is_plain and words[0] not in _OPEN_ENDED_PROGRAMS and "=" not in words[0]:
        return " ".join(prefix) + " *"
    whole = " ".join(words)
    return whole if set(whole).isdisjoint("*?$`") else ""


# A change of directory is judged by its target and not as a command, as in OpenCode.
_NOT_LISTED: Final = frozenset({"cd", ""})
MAX_POSSIBLE_COMMANDS: Final = 12
_COMMAND_START: Final = re.compile(r"[A-Za-z_]")
# Options with a value that may come between a program and its subcommand.
_GLOBAL_VALUE_OPTIONS: Final = {
    "docker": split_names("-H --host -c --context --config -l --log-level"),
    "podman": split_names("-c --connection --url --log-level"),
    "kubectl": split_names("-n --namespace --context --kubeconfig --cluster --user -s --server"),
    "helm": split_names("-n --namespace --kube-context --kubeconfig"),
    "npm": split_names("--prefix -C -w --workspace"),
    "pnpm": split_names("-C --dir --filter -F"),
    "yarn": split_names("--cwd"),
    "cargo": split_names("--config -C --color"),
    "go": split_names("-C"),
    "gh": split_names("-R --repo"),
    "aws": split_names("--profile --region --output"),
    "systemctl": split_names("-H --host -M --machine"),
    "terraform": split_names(""),
}


class WrittenWord(Struct, frozen=True):
    """A field, and how it is written in the command."""

    field: Field
    source: str


def list_line_actions(line: list[WrittenWord]) -> list[ShellAction]:
    """Return the actions for a command that a person could have typed, as written and as expanded."""
    written = [
        Field(word.source) if word.field.listing is None and not has_hole(word.field.text) else word.field
        for word in line
    ]
    expanded = [
        word.field
        if word.field.text and not any(char.isspace() for char in word.field.text)
        else written_word
        for word, written_word in zip(line, written, strict=True)
    ]
    return list_argv_actions(tuple(written), tuple(expanded))


def list_argv_actions(*expansions: Fields) -> list[ShellAction]:
    """Return an action for each spelling of a command that the rules may use."""
    spellings = dict.fromkeys(spelling for fields in expansions for spelling in _list_spellings(fields))
    return [_to_action(fields) for fields in spellings if fields[0].text not in _NOT_LISTED]


def list_possible_actions(argv: Fields) -> list[ShellAction]:
    """Return an action for each command that an unknown program may run.

    These are each tail of its words, and each word that is itself a command line.
    """
    texts = [field.text for field in argv]
    first = max(1, len(find_prefix(texts)))
    commands = [*_list_tails(texts[first:])]
    for text in texts[1:]:
        if " " in text:
            commands += _list_tails((text.partition("=")[2] if text.startswith("-") else text).split())
    return [
        ShellAction(permission="bash", pattern=command, perhaps=True)
        for command in commands
        if _COMMAND_START.match(command)
    ]


def _list_tails(words: list[str]) -> Iterator[str]:
    for start in range(min(len(words), MAX_POSSIBLE_COMMANDS)):
        yield " ".join((os.path.basename(words[start]), *words[start + 1 :]))


def _list_spellings(fields: Fields) -> Iterator[Fields]:
    """Yield a command by its path, by its bare name, and without the options before its subcommand."""
    yield fields
    name = fields[0].text
    if "/" in name:
        name = os.path.basename(name)
        yield (Field(name), *fields[1:])
    if name in _GLOBAL_VALUE_OPTIONS and len(fields) > 1 and fields[1].text.startswith("-"):
        yield (Field(name), *parse_arguments(fields[1:], _GLOBAL_VALUE_OPTIONS[name], until_word=True).words)


def _to_action(fields: Fields) -> ShellAction:
    is_known = not any(has_hole(field.text) for field in fields)
    always = to_always_pattern([field.text for field in fields]) if is_known else ""
    return ShellAction(permission="bash", pattern=join_fields(fields), always=always)
