"""What was found when a directory was opened, kept for whoever asks about it."""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from weft.app.login.ways import Ways
from weft.config.load import Loaded
from weft.config.sources import Situation
from weft.host.paths import Paths
from weft.model.agent import Skill
from weft.provider.offer.offers import Offers


def _no_skills() -> tuple[Skill, ...]:
    return ()


def _no_offers() -> None:
    return None


class Known(Struct, frozen=True, kw_only=True):
    """Nothing is known of a house that was put together by hand. `offers` and `skills` are looked for
    when they are called; `ways` are those to log in."""

    env: Mapping[str, str] = {}
    paths: Paths = Paths(data="", config="", cache="", state="", home="", os_home="")
    situation: Situation | None = None
    loaded: Loaded | None = None
    offers: Callable[[], Offers | None] = _no_offers
    skills: Callable[[], tuple[Skill, ...]] = _no_skills
    ways: Ways = field(default_factory=Ways)
