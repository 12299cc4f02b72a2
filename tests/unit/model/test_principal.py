"""Which tokens, limits and directories make sense."""

from decimal import Decimal

import pytest

from weft.errors import InvalidInputError, NotFoundError
from weft.model.principal import (
    Principal,
    PrincipalLimits,
    PrincipalTokens,
    Token,
    TokenInput,
    TokenScope,
    check_directories,
    check_limits,
    check_principal_name,
    check_revocable,
    check_token_input,
    includes,
    list_hidden,
)

NOW = 1_700_000_000_000
ADA = Principal(name="ada", directories=("/srv/ada",))


def make_token(name: str, scope: TokenScope = "run", expires: int | None = None) -> Token:
    return Token(id=f"weft_{name}", name=name, principal=name, scope=scope, created=0, expires=expires)


def test_a_scope_includes_those_before_it() -> None:
    allowed = {
        (one, other)
        for one in ("read", "run", "admin")
        for other in ("read", "run", "admin")
        if includes(one, other)
    }
    assert allowed == {
        ("read", "read"),
        ("run", "read"),
        ("run", "run"),
        ("admin", "read"),
        ("admin", "run"),
        ("admin", "admin"),
    }


@pytest.mark.parametrize("name", ["ada", "ci-nightly", "a", "0", "x.y_z", "a" * 63])
def test_a_valid_name_is_accepted(name: str) -> None:
    assert check_principal_name("name", name) == name


@pytest.mark.parametrize("name", ["", "Ada", "-x", ".x", "a b", "a'b", "a/b", "ä", "a" * 64, "a\n", "a\0"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_principal_name("name", name)
    assert refused.value.hint


def test_the_first_token_of_a_principal_says_what_it_may_use() -> None:
    limits = PrincipalLimits(sessions=2, tokens=1000, cost=Decimal("1.50"))
    input = TokenInput(name="ada", directories=("/srv/ada", "/srv/ada"), limits=limits)
    made = check_token_input(input, PrincipalTokens(), NOW)
    assert made == Principal(name="ada", directories=("/srv/ada",), limits=limits)


def test_a_later_token_changes_nothing_of_its_principal() -> None:
    known = PrincipalTokens(tokens=(make_token("ada"),), principals=(ADA,))
    assert check_token_input(TokenInput(name="phone", principal="ada"), known, NOW) == ADA
    for more in ({"directories": ("/srv",)}, {"limits": PrincipalLimits(sessions=1)}):
        with pytest.raises(InvalidInputError, match="has its directories and limits already"):
            check_token_input(TokenInput(name="phone", principal="ada", **more), known, NOW)


@pytest.mark.parametrize(
    "limits",
    [
        {"sessions": 0},
        {"sessions": -1},
        {"tokens": 0},
        {"cost": Decimal(0)},
        {"cost": Decimal("NaN")},
        {"cost": Decimal("Infinity")},
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Decimal | int]) -> None:
    with pytest.raises(InvalidInputError):
        check_limits(PrincipalLimits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize("directories", [(), ("",), ("srv",), ("/",), ("//",), ("/a\0b",)])
def test_directories_that_make_no_sense_are_refused(directories: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError):
        check_directories(directories)


def test_the_last_administrator_is_not_revoked_by_mistake() -> None:
    root, other = make_token("root", "admin"), make_token("other", "admin", expires=NOW)
    alone = PrincipalTokens(tokens=(root,))
    assert check_revocable("root", alone, NOW) == root
    with pytest.raises(InvalidInputError, match="last admin token"):
        check_revocable("root", PrincipalTokens(tokens=(root, other, make_token("ada"))), NOW)
    assert (
        check_revocable("weft_root", PrincipalTokens(tokens=(root, make_token("second", "admin"))), NOW)
        == root
    )
    with pytest.raises(NotFoundError, match="there is no token"):
        check_revocable("eve", alone, NOW)


def test_directories_of_others_are_hidden_unless_they_are_shared() -> None:
    ben = Principal(name="ben", directories=("/srv/ben", "/srv/ada/shared", "/srv", "/srv/adams"))
    known = PrincipalTokens(principals=(ADA, ben))
    assert list_hidden(ADA, known) == ("/srv/ben", "/srv/adams")
