"""Templates of slash commands: inserted text is not expanded again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config.commands import (
    ShellInsertion,
    TemplateText,
    bind_arguments,
    fill_template,
    list_hints,
    list_insertions,
    parse_template,
    split_arguments,
)

TEXT = st.text(alphabet=st.sampled_from("ab $1!`\"'@\n{}\\") | st.characters(codec="utf-8"), max_size=40)
HARMLESS = st.text(alphabet="abc \n.", max_size=20)


@pytest.mark.parametrize(
    ("template", "arguments", "filled"),
    [
        ("A $1 B $2", 'one "two three" four', "A one B two three four"),
        ("A $1 B $2", "one", "A one B"),
        ("$2 before $1", "a b c", "b c before a"),
        ("$1 $1", "a b", "a b a b"),
        ("$3", "a b c d", "c d"),
        ("Do it.", "x", "Do it.\n\nx"),
        ("Do it.", "  \n", "Do it."),
        ("Say $ARGUMENTS!", 'a "b c"', 'Say a "b c"!'),
        ("$1 of $ARGUMENTS", "'x y' z", "x y z of 'x y' z"),
        ("Look at $1", "[Image 1] [image  22]", "Look at [Image 1] [image  22]"),
        ("$ARGUMENTS", "$1 $ARGUMENTS !`ls`", "$1 $ARGUMENTS !`ls`"),
        ("$0 costs $", "x", "$0 costs $\n\nx"),
        (" \n Go. \n", "", "Go."),
        ("é $1 🧵", "ß", "é ß 🧵"),
    ],
)
def test_arguments_replace_their_placeholders(template: str, arguments: str, filled: str) -> None:
    assert fill_template(parse_template(template), arguments) == filled


def test_a_template_consists_of_text_and_insertions() -> None:
    pieces = parse_template("a !`git diff $1` b !`ls`")
    assert pieces == (
        TemplateText("a "),
        ShellInsertion("git diff $1"),
        TemplateText(" b "),
        ShellInsertion("ls"),
        TemplateText(""),
    )
    assert fill_template(pieces, "x", ["one", "two $1"]) == "a one b two $1\n\nx"
    assert list_insertions(parse_template("!`` !`a\nb` `!`c`")) == ["a\nb", "c"]


def test_hints_are_the_placeholders_of_the_template() -> None:
    assert list_hints(parse_template("$10 $2 $ARGUMENTS $2 !`awk '{print $1}'`")) == [
        "$2",
        "$10",
        "$ARGUMENTS",
    ]
    assert list_hints(parse_template("none")) == []


@given(template=HARMLESS, arguments=TEXT)
def test_arguments_are_inserted_verbatim(template: str, arguments: str) -> None:
    assert (
        fill_template(parse_template(f"{template}<$ARGUMENTS>"), arguments)
        == f"{template}<{arguments}>".strip()
    )


@given(template=TEXT, arguments=TEXT, outputs=st.lists(TEXT, max_size=5))
def test_only_the_template_decides_which_commands_run(
    template: str, arguments: str, outputs: list[str]
) -> None:
    pieces = parse_template(template)
    before = list_insertions(pieces)
    fill_template(pieces, arguments, outputs)
    assert list_insertions(parse_template(template)) == before
    assert all(f"!`{command}`" in template for command in before)


@given(output=TEXT, arguments=TEXT)
def test_the_output_of_a_command_is_inserted_verbatim(output: str, arguments: str) -> None:
    assert (
        fill_template(parse_template("<!`x`> $ARGUMENTS."), arguments, [output]) == f"<{output}> {arguments}."
    )


@given(words=st.lists(st.text(alphabet="abc$`!", min_size=1, max_size=5), max_size=6))
def test_words_are_arguments_and_the_last_placeholder_takes_the_rest(words: list[str]) -> None:
    assert split_arguments(" ".join(words)) == words
    first, rest = "".join(words[:1]), " ".join(words[1:])
    assert fill_template(parse_template("[$1|$2]"), " ".join(words)) == f"[{first}|{rest}]"


@given(text=TEXT)
def test_splitting_arguments_loses_only_quotes_and_blanks(text: str) -> None:
    left = "".join(text.replace('"', "").replace("'", "").split())
    assert "".join("".join(split_arguments(text)).replace('"', "").replace("'", "").split()) == left


@given(template=TEXT, arguments=TEXT)
def test_any_text_is_a_valid_template(template: str, arguments: str) -> None:
    fill_template(parse_template(template), arguments)
    list_hints(parse_template(template))


def test_arguments_are_bound_by_name_or_by_position() -> None:
    assert bind_arguments("all strict", ("what", "how")) == ({"what": "all", "how": "strict"}, "")
    assert bind_arguments('how="very strict" all', ("what", "how")) == (
        {"how": "very strict", "what": "all"},
        "",
    )
    assert bind_arguments("what=all", ("what", "how")) == ({"what": "all"}, "")
    assert bind_arguments("one two three", ("what", "how")) == ({"what": "one", "how": "two three"}, "")
    assert bind_arguments("x=1 what=2", ("what",)) == ({"what": "2"}, "x=1")
    assert bind_arguments("please", ()) == ({}, "please")
    assert bind_arguments("a=b what='' ", ("what", "how")) == ({"what": "", "how": "a=b"}, "")
