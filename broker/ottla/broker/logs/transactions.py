"""What a client is told that wants transactions, until they are served.  Pure.

The code is the one that every client takes as final: librdkafka and the Java client retry most
others of a coordinator permanently, and a producer that waits in `init_transactions` is found later
than one that fails.
"""

from ottla.model.errors import ErrorCode, RefusedError

NOT_SERVED = (
    "Transactions are not served by this version of Ottla; take transactional.id out of the "
    "producer's settings (idempotent producers are served)."
)


def refusal_of_transactions() -> RefusedError:
    """Return the refusal of whatever names a transactional id or is part of a transaction."""
    return RefusedError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_SERVED)
