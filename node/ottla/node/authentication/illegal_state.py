"""Refuses SaslHandshake and SaslAuthenticate from clients that must not authenticate now. Pure.

Such requests arrive on a listener without SASL, or after the login on a connection whose session
does not expire.
"""

from ottla.model.errors import ErrorCode
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse


def register_sasl_apis(dispatcher: Dispatcher) -> None:
    """Register handlers that answer SaslHandshake and SaslAuthenticate with ILLEGAL_SASL_STATE.
    While a client must authenticate, its connection's guard answers both requests before they reach
    these handlers."""
    dispatcher.register(SASL_HANDSHAKE, _refuse_handshake)
    dispatcher.register(SASL_AUTHENTICATE, _refuse_authenticate)


def _refuse_handshake(context: RequestContext, request: object) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def _refuse_authenticate(context: RequestContext, request: object) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
