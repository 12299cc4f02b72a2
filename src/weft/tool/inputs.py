"""The arguments of the built-in tools, as models read and write them."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

MAX_LABEL = 30


class OptionInput(Struct, frozen=True, kw_only=True):
    label: Annotated[
        str, Meta(description="The answer, in one to five words.", extra_json_schema={"maxLength": MAX_LABEL})
    ]
    description: Annotated[str, Meta(description="What follows if it is chosen.")]


class QuestionItem(Struct, frozen=True, kw_only=True):
    question: Annotated[str, Meta(description="The whole question.")]
    header: Annotated[
        str,
        Meta(description="A very short name for the question.", extra_json_schema={"maxLength": MAX_LABEL}),
    ]
    options: Annotated[tuple[OptionInput, ...], Meta(description="The answers to choose from.")]
    multiple: Annotated[bool, Meta(description="Whether the user may choose several answers.")] = False


class QuestionInput(Struct, frozen=True, kw_only=True):
    questions: Annotated[
        tuple[QuestionItem, ...], Meta(description="The questions, which are asked together.")
    ]


# How long a command may run unless the model or the environment says otherwise.
DEFAULT_COMMAND_TIMEOUT_MS: Final = 120_000


class BashInput(Struct, frozen=True, kw_only=True):
    command: Annotated[str, Meta(description="The command, as typed into a shell.")]
    description: Annotated[
        str, Meta(description="What the command does, in five to ten words, for the person who watches.")
    ]
    timeout: Annotated[
        int | None,
        Meta(description="How long the command may take, in milliseconds; leave it out for the default."),
    ] = None
    workdir: Annotated[
        str | None,
        Meta(description="The directory to run it in, instead of `cd`; the working directory if left out."),
    ] = None
    background: Annotated[
        bool,
        Meta(
            description="Start the command and return at once; its output goes to a file, and it ends with the session."
        ),
    ] = False


DEFAULT_LINES: Final = 2000


class ReadInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    offset: Annotated[int, Meta(ge=0, description="How many lines to skip before the first one shown.")] = 0
    limit: Annotated[int, Meta(ge=1, description="How many lines to show at most; 2000 if left out.")] = (
        DEFAULT_LINES
    )


class GlobInput(Struct, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(description="The glob, such as `**/*.py` or `src/**/test_*.ts`.")]
    path: Annotated[
        str | None, Meta(description="The directory to search; the working directory if left out.")
    ] = None


class GrepInput(Struct, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(description="The regular expression to look for, line by line.")]
    path: Annotated[
        str | None, Meta(description="The directory or file to search; the working directory if left out.")
    ] = None
    include: Annotated[
        str | None, Meta(description="A glob for the files to search, such as `*.{ts,tsx}`.")
    ] = None


class ListInput(Struct, frozen=True, kw_only=True):
    path: Annotated[str | None, Meta(description="The directory; the working directory if left out.")] = None
    ignore: Annotated[tuple[str, ...], Meta(description="Globs for files and directories to leave out.")] = ()


OldString = Annotated[str, Meta(description="The text to replace, quoted as it stands in the file.")]

NewString = Annotated[str, Meta(description="The new text, which must differ from the old one.")]

ReplaceAll = Annotated[bool, Meta(description="Replace every occurrence, not just one.")]


class EditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    old_string: OldString
    new_string: NewString
    replace_all: ReplaceAll = False


class SingleEdit(Struct, frozen=True, kw_only=True, rename="camel"):
    old_string: OldString
    new_string: NewString
    replace_all: ReplaceAll = False


class MultiEditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    edits: Annotated[
        tuple[SingleEdit, ...],
        Meta(
            min_length=1,
            description="The replacements, applied in order, each to the result of the one before.",
        ),
    ]


class WriteInput(Struct, frozen=True, kw_only=True, rename="camel"):
    content: Annotated[str, Meta(description="The whole new content of the file.")]
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]


class PatchInput(Struct, frozen=True, kw_only=True, rename="camel"):
    patch_text: Annotated[
        str, Meta(description="The whole patch, from `*** Begin Patch` to `*** End Patch`.")
    ]


class TaskInput(Struct, frozen=True, kw_only=True):
    description: Annotated[str, Meta(description="A name for the task, in three to five words.")]
    prompt: Annotated[
        str, Meta(description="Everything that the subagent has to know, and what it has to do.")
    ]
    subagent_type: Annotated[str, Meta(description="The subagent that does the task.")]
    session_id: Annotated[
        str | None,
        Meta(description="The session of an earlier task, to continue it; leave it out to start a new one."),
    ] = None
    command: Annotated[str | None, Meta(description="The command that led to this task, if one did.")] = None


class WebFetchInput(Struct, frozen=True, kw_only=True):
    url: Annotated[str, Meta(description="The whole address, with http:// or https://.")]
    format: Annotated[
        Literal["text", "markdown", "html"],
        Meta(description="The format to convert a page to; html leaves it unchanged."),
    ] = "markdown"
    timeout: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="How long the request may take, in seconds; 30 if left out, 120 at most."),
    ] = None


class TodoItem(Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(description="What has to be done, in a few words.")]
    status: Annotated[str, Meta(description="pending, in_progress, completed or cancelled.")]
    priority: Annotated[str, Meta(description="high, medium or low.")]
    id: Annotated[str, Meta(description="A name for the item that stays the same.")] = ""


class TodoWriteInput(Struct, frozen=True, kw_only=True):
    todos: Annotated[tuple[TodoItem, ...], Meta(description="The whole new list.")]


class TodoReadInput(Struct, frozen=True, kw_only=True):
    pass


Operation = Literal[
    "goToDefinition",
    "findReferences",
    "hover",
    "documentSymbol",
    "workspaceSymbol",
    "goToImplementation",
    "prepareCallHierarchy",
    "incomingCalls",
    "outgoingCalls",
]


class LspInput(Struct, frozen=True, kw_only=True, rename="camel"):
    operation: Annotated[Operation, Meta(description="What to find out.")]
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    line: Annotated[int, Meta(ge=1, description="The line, counted from 1, as `read` shows it.")]
    character: Annotated[int, Meta(ge=1, description="The character in the line, counted from 1.")]


MAX_CALLS: Final = 25


class BatchCall(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="The name of the tool.")]
    parameters: Annotated[
        dict[str, Any], Meta(description="The arguments of the tool, as in a call of its own.")
    ]


class BatchInput(Struct, frozen=True, kw_only=True):
    tool_calls: Annotated[
        tuple[BatchCall, ...], Meta(min_length=1, description=f"The calls, {MAX_CALLS} at most.")
    ]


class PlanEnterInput(Struct, frozen=True, kw_only=True):
    pass


class PlanExitInput(Struct, frozen=True, kw_only=True):
    pass


MAX_RESULTS: Final = 20


class RecallInput(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="Words that must all occur in a message.")]
    limit: Annotated[
        int,
        Meta(
            description=f"The largest number of matches to return, up to {MAX_RESULTS}.", ge=1, le=MAX_RESULTS
        ),
    ] = 5


class HistoryInput(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="Words that must all occur in a message.")] = ""
    session: Annotated[str | None, Meta(description="The id of the session whose message to read.")] = None
    message: Annotated[str | None, Meta(description="The id of the message to read.")] = None
    limit: Annotated[
        int,
        Meta(
            description=f"The largest number of sessions to return, up to {MAX_RESULTS}.",
            ge=1,
            le=MAX_RESULTS,
        ),
    ] = 5


class JobsInput(Struct, frozen=True, kw_only=True):
    stop: Annotated[str | None, Meta(description="The id of a job to stop; leave it out to list them.")] = (
        None
    )
