from weft.api import Api as Api
from weft.client.api import connect as connect
from weft.client.blocking import blocking as blocking
from weft.client.blocking import connect_sync as connect_sync
from weft.client.conversation import Conversation as Conversation
from weft.client.conversation import converse as converse
from weft.errors import WeftError as WeftError
from weft.local.open import open_weft as open
from weft.model.input import PromptInput as PromptInput
from weft.model.input import SessionInput as SessionInput
from weft.model.input import prompt as prompt
from weft.model.message import JsonFormat as JsonFormat

__version__: str
