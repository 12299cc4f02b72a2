"""What a child session may do: what it was given, and never what its parent may not."""

from weft.model.permission import Rule, Ruleset
from weft.model.session import Session, SessionOwn, own_of

# A parent's plan is the parent's to read and to write, and who is handed a task does not hand it on.
_NOT_IN_A_CHILD = ("todowrite", "todoread", "task")


def child_rules(given: Ruleset | None, parent: Session) -> Ruleset:
    """The rules of a child: what was given, else the usual ones; then all that the parent's own rules withhold.

    OpenCode forgets the parent's rules, so that a child may do what its parent may not. Here they come last, where
    they have the last word, without those that allow: these would undo what the child was denied.
    """
    usual = tuple(Rule(permission=each, pattern="*", action="deny") for each in _NOT_IN_A_CHILD)
    withheld = tuple(rule for rule in parent.permission or () if rule.action != "allow")
    own = usual if given is None else given
    return (*(rule for rule in own if rule not in withheld), *withheld)


def child_own(parent: Session) -> SessionOwn | None:
    """What a child is told of those above its parent: their limits are its own."""
    limits = own_of(parent).limits
    return SessionOwn(limits=limits) if limits else None
