"""What the rules say of a shell command, part by part. Nothing is run, and nobody is asked."""

from collections.abc import Sequence

from msgspec import Struct

from weft.model.permission import Action, Limits, Rule
from weft.permission.limits import judge as judge_pattern
from weft.permission.limits import strictest
from weft.permission.writing import watch_named, watch_writers
from weft.tool.shell.command import judge
from weft.tool.shell.places import Where
from weft.tool.shell.scene import Part


class JudgedPart(Struct, frozen=True, kw_only=True):
    """One thing that a command does, and the rule that has the say on it."""

    part: Part
    rule: Rule


class Explanation(Struct, frozen=True, kw_only=True):
    """Every part of a command, in the order in which a tool asks for them."""

    parts: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> Action:
        """The strictest of all."""
        return strictest(each.rule for each in self.parts).action


def explain(command: str, where: Where, limits: Limits) -> Explanation:
    """The same judgement, against the same rules, as a call of the `bash` tool meets. Blocks."""
    return hold(judge(command, where).in_order, limits)


def hold(parts: Sequence[Part], limits: Limits) -> Explanation:
    """Parts of a command, held against the rules."""
    watched = watch_writers(limits, "bash", (part.pattern for part in parts if part.may_write))
    watched = watch_named(watched, "bash", (part.pattern for part in parts if part.perhaps))
    return Explanation(
        parts=tuple(
            JudgedPart(part=part, rule=judge_pattern(part.permission, part.pattern, watched))
            for part in parts
            if not part.perhaps
        )
    )
