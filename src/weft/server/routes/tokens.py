"""HTTP routes for tokens and principals. They need an admin token, or the password of the server."""

from msgspec import Struct

from weft.api.tokens import TokenAdministration
from weft.errors import UnsupportedError
from weft.model.principal import NewToken, Principal, PrincipalChange, PrincipalTokens, Token, TokenInput
from weft.server.route import ServerCall, route

OWN = "/weft/token"


class RevokeTokenQuery(Struct, frozen=True, kw_only=True):
    """With `force`, the last admin token is revoked, too."""

    force: bool = False


def _get_tokens(call: ServerCall) -> TokenAdministration:
    tokens = call.server.tokens
    if tokens is None:
        raise UnsupportedError("tokens on this server", hint="start the server with weft serve")
    return tokens


async def create_token(call: ServerCall) -> NewToken:
    """Create a token. Its secret is returned once."""
    input: TokenInput = call.body
    return await _get_tokens(call).create(input)


async def list_tokens(call: ServerCall) -> PrincipalTokens:
    """List all tokens, without their secrets, and the principals they belong to."""
    return await _get_tokens(call).list_all()


async def revoke_token(call: ServerCall) -> Token:
    """Revoke a token by its name or the beginning that `list` shows."""
    query: RevokeTokenQuery = call.query
    return await _get_tokens(call).revoke(call.path_params["name"], force=query.force)


async def change_principal(call: ServerCall) -> Principal:
    """Change the directories, the git workspaces or the limits of a principal. Its runs end, and its next request opens everything again."""
    change: PrincipalChange = call.body
    return await _get_tokens(call).change_principal(call.path_params["principal"], change)


ROUTES = (
    route("GET", OWN, "weft.token.list", list_tokens),
    route("POST", OWN, "weft.token.create", create_token, takes=TokenInput),
    route("DELETE", f"{OWN}/{{name}}", "weft.token.revoke", revoke_token, query=RevokeTokenQuery),
    route(
        "PATCH",
        "/weft/principal/{principal}",
        "weft.principal.update",
        change_principal,
        takes=PrincipalChange,
    ),
)
