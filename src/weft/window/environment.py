"""Where a model is told that it works (pure)."""

from weft.model.wire import Wire


class Environment(Wire, frozen=True, kw_only=True):
    """The facts of a place. `today` is a day in words, as the person's calendar has it."""

    directory: str
    git: bool
    platform: str
    today: str


def describe(environment: Environment) -> str:
    return "\n".join(
        (
            "This is where you work:",
            "<env>",
            f"  Working directory: {environment.directory}",
            f"  Is directory a git repo: {'yes' if environment.git else 'no'}",
            f"  Platform: {environment.platform}",
            f"  Today's date: {environment.today}",
            "</env>",
        )
    )
