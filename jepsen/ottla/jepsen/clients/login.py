"""Login of load clients, and of the harness's own requests. Ottla's client and confluent-kafka log
in as the same user.

The login is a context variable, like `ottla.client.network.login.LOGIN`. It applies to a task and
to all tasks and threads that this task starts.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.settings.security.client_security import access_of

NOTHING: Mapping[str, str] = MappingProxyType({})
CONFLUENT_LOGIN: ContextVar[Mapping[str, str]] = ContextVar("confluent_login", default=NOTHING)
"""Login settings of librdkafka clients, by librdkafka's keys."""


@contextmanager
def logged_in(settings: Mapping[str, str]) -> Iterator[None]:
    """Return a context in which every new client logs in with these settings. Their names are
    librdkafka's keys."""
    access = access_of(settings)
    dialer = None if access.tls is None else TlsDialer(access.tls)
    theirs = CONFLUENT_LOGIN.set(settings)
    login, encryption = LOGIN.set(access.login), TLS.set(dialer)
    try:
        yield
    finally:
        TLS.reset(encryption)
        LOGIN.reset(login)
        CONFLUENT_LOGIN.reset(theirs)
