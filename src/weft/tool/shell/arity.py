"""How many words name what a program does, and what a lasting yes to a command may cover."""

import re
from typing import Final

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
