"""Evaluate words: quotes, variables, braces, globs, and parts that are not known."""

import os
from collections.abc import Sequence

import pytest

from weft.tool.shell.arguments import (
    Field,
    Fields,
    FileListing,
    Number,
    ParsedArguments,
    Value,
    join_fields,
    parse_arguments,
    split_names,
    unknown_field,
)
from weft.tool.shell.grammar import parse
from weft.tool.shell.lexer import Node
from weft.tool.shell.patterns import find_prefix, to_always_pattern
from weft.tool.shell.words import Atom, WordReader, expand_braces

KNOWN: dict[str, Sequence[Value]] = {
    "one": ["a"],
    "two": ["a", "b"],
    "split": ["a b"],
    "star": ["*.py"],
    "empty": [""],
    "list": [FileListing(roots=("/x",))],
    "number": [Number.SOME],
}
WORDS = WordReader(lookup=KNOWN.get, output=lambda _: None, home="/home/ada")


def parse_word(text: str) -> Node:
    root = parse(f"echo {text}")
    assert not isinstance(root, str), root
    return root.children[0].children[1]


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("a", [("a",)]),
        ("'a b'", [("a b",)]),
        ('"a b"', [("a b",)]),
        ('"a\\"b\\$c"', [('a"b$c',)]),
        ("a\\ b", [("a b",)]),
        ("a'b'\"c\"", [("abc",)]),
        ("$'a\\tb\\x63'", [("a\tbc",)]),
        ("''", [("",)]),
        ("~", [("/home/ada",)]),
        ("~/x", [("/home/ada/x",)]),
        ("'~'", [("~",)]),
        ('~"/x"', [("⟦~⟧/x",)]),
        ("~$one", [("⟦~⟧a",)]),
        ('~root"x"', [("⟦~root⟧x",)]),
        ("{1..a}", [("⟦{1..a}⟧",)]),
        ("{~root/a,~/b,~}", [(os.path.expanduser("~root/a"), "/home/ada/b", "/home/ada")]),
        ("{~+/a,b}", [("⟦~+/a⟧", "b")]),
        ("$one", [("a",)]),
        ("${one}b", [("ab",)]),
        ("$two", [("a",), ("b",)]),
        ("$two$two", [("aa",), ("ab",), ("ba",), ("bb",)]),
        ("$split", [("a", "b")]),
        ('"$split"', [("a b",)]),
        ("$empty", [()]),
        ('"$empty"', [("",)]),
        ("$unknown", [("⟦$unknown⟧",)]),
        ("${one:-b}", [("⟦${one:-b}⟧",)]),
        ("x$(date)", [("x⟦$(date)⟧",)]),
        ("$number", [("⟦$number⟧",)]),
        ("{a,b}c", [("ac", "bc")]),
        ("{1..3}", [("1", "2", "3")]),
        ("'{a,b}'", [("{a,b}",)]),
        ("<(ls)", [("/dev/fd/63",)]),
    ],
)
def test_a_word_is_read_as_the_shell_reads_it(text: str, readings: list[tuple[str, ...]]) -> None:
    found = WORDS.list_expansions(parse_word(text))
    assert [tuple(field.text for field in reading) for reading in found] == readings


@pytest.mark.parametrize(
    ("text", "glob_pattern"),
    [
        ("*.py", "*.py"),
        ("'*'.py", ""),
        ("'*'*.py", "[*]*.py"),
        ("\\**", "[*]*"),
        ("$star", "*.py"),
        ('"$star"', ""),
        ("~/*", "/home/ada/*"),
        ("a$((1))", "a*"),
        ('"a$?"', "a*"),
        ("log-$number.txt", "log-*.txt"),
        ("a", ""),
    ],
)
def test_only_unquoted_wildcards_are_wildcards(text: str, glob_pattern: str) -> None:
    ((field,),) = WORDS.list_expansions(parse_word(text))
    assert field.glob_pattern == glob_pattern


def test_a_file_from_a_listing_keeps_its_listing() -> None:
    listing = FileListing(roots=("/x",))
    ((field,),) = WORDS.list_expansions(parse_word("$list"))
    assert field == Field("⟦$list⟧", listing=listing)
    assert WORDS.list_expansions(parse_word("$list.bak")) == [(Field("⟦$list.bak⟧", listing=listing),)]
    assert WORDS.list_expansions(parse_word("a/$list")) == [(unknown_field("a/$list"),)]


def test_a_word_with_too_many_expansions_is_unknown() -> None:
    assert WORDS.list_expansions(parse_word("$two$two$two$two$two")) == [
        (unknown_field("$two$two$two$two$two"),)
    ]
    assert WORDS.list_expansions(parse_word("{1..1000}")) == [(unknown_field("{1..1000}"),)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a,b}", ["a", "b"]),
        ("x{a,b}y", ["xay", "xby"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1", "b2"]),
        ("{a}", ["{a}"]),
        ("{a", ["{a"]),
        ("{,x}", ["", "x"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{1..5..2}", ["1", "3", "5"]),
        ("{01..3}", ["01", "02", "03"]),
        ("{1..003}", ["001", "002", "003"]),
        ("{-02..1}", ["-02", "-01", "000", "001"]),
        ("{-5..-3}", ["-5", "-4", "-3"]),
        ("{1_0..12}", ["{1_0..12}"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{c..a}", ["c", "b", "a"]),
        ("{a..}", ["{a..}"]),
        ("a,b", ["a,b"]),
    ],
)
def test_braces_stand_for_several_words(text: str, words: list[str]) -> None:
    found = expand_braces((Atom(text),))
    assert found is not None
    assert ["".join(atom.text for atom in word) for word in found] == words


@pytest.mark.parametrize(
    "text",
    [
        "{a..e..2}",
        "{1..c}",
        "{+1..2}",
        "{1..9..-4}",
        "{1..3..0}",
        "{1..}",
        "{1..9..02}",
        "{X..b}",
        "x{-0..2}",
    ],
)
def test_a_sequence_that_shells_read_differently_is_not_expanded(text: str) -> None:
    assert expand_braces((Atom(text),)) is None


def fields(text: str) -> Fields:
    return tuple(map(Field, text.split()))


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("-a b", ParsedArguments(options=(("-a", None),), words=fields("b"))),
        ("-o x b", ParsedArguments(options=(("-o", Field("x")),), words=fields("b"))),
        ("-ox b", ParsedArguments(options=(("-o", Field("x")),), words=fields("b"))),
        ("-aox", ParsedArguments(options=(("-a", None), ("-o", Field("x"))), words=())),
        ("--output=x", ParsedArguments(options=(("--output", Field("x")),), words=())),
        ("--outp x", ParsedArguments(options=(("--output", Field("x")),), words=fields("x"), guessed=True)),
        ("--out=x", ParsedArguments(options=(("--outline", Field("x")), ("--output", Field("x"))), words=())),
        ("--o=x", ParsedArguments(options=(("--outline", Field("x")), ("--output", Field("x"))), words=())),
        ("--output", ParsedArguments(options=(("--output", None),), words=())),
        ("a -- -o", ParsedArguments(options=(), words=fields("a -o"))),
        ("- -o", ParsedArguments(options=(("-o", None),), words=fields("-"))),
        ("-m x -o y", ParsedArguments(options=(("-m", Field("x")),), words=fields("-o y"))),
    ],
)
def test_options_and_arguments_are_told_apart(line: str, given: ParsedArguments) -> None:
    assert (
        parse_arguments(fields(line), split_names("-o -m --output --outline"), last_options=split_names("-m"))
        == given
    )


def test_everything_after_the_first_argument_may_belong_to_another_command() -> None:
    given = parse_arguments(fields("-a x -b y"), until_word=True)
    assert given == ParsedArguments(options=(("-a", None),), words=fields("x -b y"))


def test_wildcards_in_the_value_of_an_option_are_kept() -> None:
    (option,) = parse_arguments((Field("--output=*.x", "--output=*.x"),), split_names("--output")).options
    assert option == ("--output", Field("*.x", "*.x"))


def test_an_unknown_word_that_may_be_empty_includes_its_blank() -> None:
    assert join_fields((Field("ls"), unknown_field("$X"), Field("b"))) == "ls⟦ $X⟧ b"
    assert join_fields((unknown_field("$X"), Field("b"))) == "⟦$X⟧ b"
    assert join_fields((Field("ls"), Field("a⟦$X⟧"))) == "ls a⟦$X⟧"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("ls -la", 1),
        ("git status -s", 2),
        ("git stash pop", 3),
        ("npm run x", 3),
        ("aws s3 ls", 3),
        ("git", 1),
    ],
)
def test_the_first_words_of_a_command_name_its_action(words: str, count: int) -> None:
    assert find_prefix(words.split()) == words.split()[:count]


@pytest.mark.parametrize(
    ("words", "always"),
    [
        ("ls -la", "ls *"),
        ("git -C x status", "git -C x status"),
        ("env ls", "env ls"),
        ("env ls *", ""),
        ("X=1 ls", "X=1 ls"),
        ("", ""),
    ],
)
def test_a_lasting_grant_is_as_narrow_as_necessary(words: str, always: str) -> None:
    assert to_always_pattern(words.split()) == always
