"""What a child session may do: what it was given, and never what its parent may not."""

from weft.model.permission import Ruleset
from weft.model.session import Session, SessionOwn, own_of


def child_rules(given: Ruleset | None, parent: Session) -> Ruleset | None:
    """Return the rules that were given to a child, followed by all that the parent's own rules withhold.

    OpenCode forgets the parent's rules, so that a child may do what its parent may not. Here they come last, where
    they have the last word, without those that allow: these would undo what the child was denied.
    """
    withheld = tuple(rule for rule in parent.permission or () if rule.action != "allow")
    if not withheld:
        return given
    return (*(rule for rule in given or () if rule not in withheld), *withheld)


def child_own(parent: Session) -> SessionOwn | None:
    """What a child is told of those above its parent: their limits are its own."""
    limits = own_of(parent).limits
    return SessionOwn(limits=limits) if limits else None
