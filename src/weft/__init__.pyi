from weft.api import Api as Api
from weft.app.open import open_weft as open
from weft.errors import WeftError as WeftError
from weft.model.input import PromptInput as PromptInput
from weft.model.input import SessionInput as SessionInput
from weft.model.input import prompt as prompt
from weft.model.message import JsonFormat as JsonFormat

__version__: str
