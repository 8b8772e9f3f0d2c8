"""Converts an exception of a view (a function that computes a page) to an HTTP status and an error
sentence. Pure."""

from http import HTTPStatus

from ottla.model.errors import ConfigError, ErrorCode, OttlaError, RefusedError
from ottla.model.values import frozen

NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}
UNREACHABLE = {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}


class PageError(Exception):
    """Error for a request that the console itself refuses. It has an HTTP status and a reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        """Reason for the refusal: one sentence for the user."""


@frozen(kw_only=True)
class Failure:
    """Content of the error page that the console shows in place of a page."""

    status: int
    title: str
    reason: str
    """Reason for the failure: one sentence."""
    code: str = ""
    """Name of Kafka's error code. Empty if the failure is not an error of the cluster."""
    advice: str = ""
    """Command or step that helps after the failure, or an empty text if no advice exists."""


def failure_of(error: Exception) -> Failure:
    """Return the content of the error page for an exception that a page's view raised."""
    match error:
        case PageError():
            return Failure(status=error.status, title=error.status.phrase, reason=error.reason)
        case RefusedError():
            return _of_refusal(error)
        case ConfigError():
            return Failure(status=400, title="Invalid input", reason=str(error))
        case OttlaError():
            return Failure(
                status=503,
                title="The cluster does not answer",
                reason=str(error),
                advice="ottla status",
            )
        case TimeoutError():
            return Failure(
                status=504,
                title="The cluster answers too slowly",
                reason="the page was not complete in time",
                advice="ottla explain slow",
            )
    return Failure(
        status=500, title="Error of the console", reason="the console's log has the details"
    )


def _of_refusal(error: RefusedError) -> Failure:
    status, title, advice = 409, "The cluster refused this", ""
    if error.code.name.endswith("AUTHORIZATION_FAILED"):
        status, title, advice = 403, "Not allowed", "ottla explain denial"
    elif error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        status, title = 401, "The cluster refused the login"
    elif error.code in NOT_FOUND:
        status, title = 404, "Not found"
    elif error.code in UNREACHABLE:
        status, title, advice = 503, "The cluster does not answer", "ottla status"
    elif error.code is ErrorCode.UNSUPPORTED_VERSION:
        # Requests of Ottla's own, at a cluster of Apache Kafka: a fact about the cluster, no error.
        status, title = 200, "Not available on this cluster"
    return Failure(
        status=status, title=title, reason=error.message, code=error.code.name, advice=advice
    )
