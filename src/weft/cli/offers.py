"""What the commands about providers begin with: the offers in a directory, and warnings on the way."""

import sys
from collections.abc import Mapping

from weft.cli.paint import Paint
from weft.config.load import load_config
from weft.config.sources import Situation
from weft.errors import WeftError
from weft.host.paths import Paths, paths_from
from weft.local.models import Around, find_offers
from weft.project.look import look
from weft.provider.catalog.offers import Offers
from weft.trust.decision import is_trusted


def load_offers(directory: str, env: Mapping[str, str]) -> tuple[Offers, Paths]:
    """What is broken in the configuration is told, and does not hide the rest."""
    at, paths = look(directory), paths_from(env)
    worktree = at.top or at.directory
    trusted = is_trusted(paths, env, worktree, at.directory)
    situation = Situation(directory=at.directory, worktree=worktree, paths=paths, env=env, trusted=trusted)
    loaded = load_config(situation)
    for problem in (*loaded.problems, *loaded.warnings):
        warn(problem)
    return find_offers(loaded, Around(env=env, paths=paths, warn=warn)), paths


def warn(warning: WeftError) -> None:
    hint = f" ({warning.hint})" if warning.hint else ""
    print(f"{Paint(sys.stderr).yellow('warning:')} {warning}{hint}", file=sys.stderr)
