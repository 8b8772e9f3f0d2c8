"""Conversion of RefusedError to gRPC statuses and back.

Pure. The RefusedError of a handler is sent as the status FAILED_PRECONDITION, with Kafka's error
code in the trailing metadata, and is raised again in the caller. An unreachable peer becomes
NETWORK_EXCEPTION. A connection that is lost during the call becomes the same code
(`LostCallError`). A late response becomes REQUEST_TIMED_OUT. The caller receives only
RefusedError.
"""

from ottla.model.errors import ErrorCode, RefusedError

ERROR_CODE_KEY = "ottla-error-code"
"""Key of Kafka's error code in the trailing metadata of a gRPC response."""

CODE_OF_STATUS = {
    "UNAVAILABLE": ErrorCode.NETWORK_EXCEPTION,
    "CANCELLED": ErrorCode.NETWORK_EXCEPTION,
    "DEADLINE_EXCEEDED": ErrorCode.REQUEST_TIMED_OUT,
    "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
    "RESOURCE_EXHAUSTED": ErrorCode.MESSAGE_TOO_LARGE,
    "UNIMPLEMENTED": ErrorCode.UNSUPPORTED_VERSION,
}
"""Kafka's error codes for gRPC statuses. A status without an entry becomes UNKNOWN_SERVER_ERROR."""


class LostCallError(RefusedError):
    """Error of a call during which the peer disconnected. The peer may have processed the request.

    The peer may also have crashed because of the request.
    """


def refusal_of(status: str, details: str | None, error_code: str | None) -> RefusedError:
    """Return the RefusedError for a failed gRPC call. It is a LostCallError if the connection broke
    during the call."""
    known = None if error_code is None else KNOWN_CODES.get(error_code)
    if known is not None:
        return RefusedError(known, details)
    code = CODE_OF_STATUS.get(status, ErrorCode.UNKNOWN_SERVER_ERROR)
    text = in_words(status, details or "")
    if status == "UNAVAILABLE" and not any(sign in (details or "") for sign in NEVER_SENT):
        return LostCallError(code, text)
    if details and NEVER_CONNECTED in details and any(sign in details for sign in NOT_GRPC):
        text += "; what listens there is no controller (is it a broker's address?)"
    return RefusedError(code, text)


def in_words(status: str, details: str) -> str:
    """Return gRPC's description of a failed call, rephrased for an operator's log."""
    for sign, words in _WORDS.items():
        if sign in details:
            return words
    words = _STATUS_WORDS.get(status, status.lower().replace("_", " "))
    return f"{words}: {details}" if details else words


_WORDS = {
    "Connection refused": "failed to connect: connection refused",
    "DNS resolution failed": "failed to connect: the host name is not found",
    "Domain name not found": "failed to connect: the host name is not found",
    "No route to host": "failed to connect: no route to the host",
    "Network is unreachable": "failed to connect: the network is unreachable",
    "Connection timed out": "failed to connect: no answer from the host",
    "FD Shutdown": "failed to connect: no answer from the host",
    "Connection reset by peer": "the other side closed the connection",
    "Socket closed": "the other side closed the connection",
    "SETTINGS frame": "no gRPC answer",
    "CERTIFICATE_VERIFY_FAILED": "failed to connect: the certificate of that side is not trusted",
    "Hostname Verification": "failed to connect: the certificate of that side is for other hosts",
    "WRONG_VERSION_NUMBER": "failed to connect: no TLS is spoken there",
    "missing selected ALPN": "failed to connect: no gRPC is spoken there",
}
"""Explanations of connection failures for operators, by fragments of gRPC's error texts. gRPC's
texts contain addresses in a notation that operators may not know."""

_STATUS_WORDS = {
    "UNAVAILABLE": "not reachable",
    "CANCELLED": "cancelled",
    "DEADLINE_EXCEEDED": "no answer in time",
}


NEVER_CONNECTED = "failed to connect"
NEVER_SENT = (NEVER_CONNECTED, "RST_STREAM with error code 7")
"""Fragments of gRPC's error texts for a call that never reached a handler. HTTP/2's REFUSED_STREAM
guarantees this."""

NOT_GRPC = ("Socket closed", "HTTP/2", "SETTINGS frame", "missing selected ALPN")
"""Fragments of gRPC's error texts for a connection to a server that does not use gRPC."""


KNOWN_CODES = {str(int(code)): code for code in ErrorCode}
"""Error codes by their text in the trailing metadata of a gRPC response. The text is untrusted,
because the peer writes it."""
