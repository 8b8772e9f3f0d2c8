"""How a refusal travels through gRPC, and what its absence means.

Pure.  A handler's `RefusedError` crosses the wire as status FAILED_PRECONDITION with Kafka's error
code in the trailing metadata, and is raised again at the caller.  A peer that is not there is
NETWORK_EXCEPTION, one that goes away during the call too (`LostCallError`), one that is late
REQUEST_TIMED_OUT: the caller meets `RefusedError` only.
"""

from ottla.model.errors import ErrorCode, RefusedError

ERROR_CODE_KEY = "ottla-error-code"
"""The trailing metadata's key of Kafka's error code."""

CODE_OF_STATUS = {
    "UNAVAILABLE": ErrorCode.NETWORK_EXCEPTION,
    "CANCELLED": ErrorCode.NETWORK_EXCEPTION,
    "DEADLINE_EXCEEDED": ErrorCode.REQUEST_TIMED_OUT,
    "INVALID_ARGUMENT": ErrorCode.INVALID_REQUEST,
    "RESOURCE_EXHAUSTED": ErrorCode.MESSAGE_TOO_LARGE,
    "UNIMPLEMENTED": ErrorCode.UNSUPPORTED_VERSION,
}
"""gRPC's own statuses in Kafka's words; any other is UNKNOWN_SERVER_ERROR."""


class LostCallError(RefusedError):
    """A call whose peer went away while it was under way: it may have been carried out.

    It may also be why the peer went.
    """


def refusal_of(status: str, details: str | None, error_code: str | None) -> RefusedError:
    """Return the refusal that a failed call means; LostCallError where its connection broke."""
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
    """Return what gRPC's library says of a failed call, in words for an operator's log."""
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
"""Causes in gRPC's texts, which name addresses in its own notation."""

_STATUS_WORDS = {
    "UNAVAILABLE": "not reachable",
    "CANCELLED": "cancelled",
    "DEADLINE_EXCEEDED": "no answer in time",
}


NEVER_CONNECTED = "failed to connect"
NEVER_SENT = (NEVER_CONNECTED, "RST_STREAM with error code 7")
"""How it says that nobody has the request: HTTP/2's REFUSED_STREAM is a promise of that."""

NOT_GRPC = ("Socket closed", "HTTP/2", "SETTINGS frame", "missing selected ALPN")
"""How gRPC's library says that a connection was made and something else spoke on it."""


KNOWN_CODES = {str(int(code)): code for code in ErrorCode}
"""Each code by its text in the trailing metadata, which a peer writes as it likes."""
