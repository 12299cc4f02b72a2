from typing_extensions import deprecated

from weft.agent.agent import Agent as Agent
from weft.agent.agent import Conversation as Conversation
from weft.agent.agent import QuestionArguments as QuestionArguments
from weft.agent.agent import Stream as Stream
from weft.agent.answer import Answer as Answer
from weft.agent.answer import BudgetExceededError as BudgetExceededError
from weft.agent.answer import Call as Call
from weft.agent.answer import InvalidAnswerError as InvalidAnswerError
from weft.agent.answer import RunAbortedError as RunAbortedError
from weft.agent.answer import RunFailedError as RunFailedError
from weft.agent.answer import RunLoopError as RunLoopError
from weft.agent.answer import RunRefusedError as RunRefusedError
from weft.agent.answer import RunTimeoutError as RunTimeoutError
from weft.agent.answer import Step as Step
from weft.agent.blocking import BlockingAgent as BlockingAgent
from weft.agent.blocking import BlockingConversation as BlockingConversation
from weft.agent.blocking import BlockingStream as BlockingStream
from weft.agent.connect import connect as connect
from weft.agent.events import AnswerEvent as AnswerEvent
from weft.agent.events import CallEvent as CallEvent
from weft.agent.events import PermissionEvent as PermissionEvent
from weft.agent.events import ReasoningEvent as ReasoningEvent
from weft.agent.events import RetryEvent as RetryEvent
from weft.agent.events import StepEvent as StepEvent
from weft.agent.events import TextEvent as TextEvent
from weft.agent.open import open as open
from weft.agent.opening import Opening as Opening
from weft.agent.options import ModelSource as ModelSource
from weft.agent.options import Permissions as Permissions
from weft.agent.schema import Json as Json
from weft.agent.sessions import Session as Session
from weft.agent.sessions import SessionStore as SessionStore
from weft.agent.sessions import StoreOpening as StoreOpening
from weft.agent.sessions import open_store as open_store
from weft.api import Api as Api
from weft.errors import ClosedError as ClosedError
from weft.errors import ConfigError as ConfigError
from weft.errors import InvalidInputError as InvalidInputError
from weft.errors import ModelNotFoundError as ModelNotFoundError
from weft.errors import NoModelError as NoModelError
from weft.errors import NotFoundError as NotFoundError
from weft.errors import NotPermittedError as NotPermittedError
from weft.errors import SessionBusyError as SessionBusyError
from weft.errors import UnreachableError as UnreachableError
from weft.errors import UnsupportedError as UnsupportedError
from weft.errors import WeftError as WeftError
from weft.model.diff import FileDiff as FileDiff
from weft.model.ids import SessionID as SessionID
from weft.model.input import PromptInput as PromptInput
from weft.model.input import SessionInput as SessionInput
from weft.model.message import MessageWithParts as MessageWithParts
from weft.model.part import Tokens as Tokens
from weft.model.permission import PermissionRequest as PermissionRequest
from weft.model.spending import Budget as Budget
from weft.plugin.tools import ToolAnswer as ToolAnswer
from weft.plugin.tools import ToolCallContext as ToolCallContext
from weft.session.append import NewFile as NewFile
from weft.session.append import NewMessage as NewMessage
from weft.session.append import NewReasoning as NewReasoning
from weft.session.append import NewText as NewText
from weft.session.append import NewToolCall as NewToolCall
from weft.session.append import NewToolResult as NewToolResult
from weft.session.append import assistant_message as assistant_message
from weft.session.append import user_message as user_message

__version__: str

# --- deprecated: see docs/reference/versions.md ---

from weft.model.message import JsonFormat as JsonFormat

@deprecated("write weft.model.input.prompt")
def prompt(text: str, *, schema: dict[str, object] | None = None) -> PromptInput: ...
