"""Whether the program wants spans and metrics, decided when a client is opened.

A program that sets a provider has imported the OpenTelemetry API; without it nothing is imported
here, and clients are the plain classes: tracing costs them nothing at all.
"""

import sys
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")

_PROVIDERS = {
    "opentelemetry.trace": "get_tracer_provider",
    "opentelemetry.metrics": "get_meter_provider",
}
"""Where the API keeps the provider that the program has set."""


def is_instrumented() -> bool:
    """Return whether the program has set a provider of spans or metrics.

    Those that the API has by itself record nothing.
    """
    for name, getter in _PROVIDERS.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        provider = getattr(module, getter)()
        if not type(provider).__module__.startswith(tuple(_PROVIDERS)):
            return True
    return False


def instrumented(plain: type[T], home: str) -> type[T]:
    """Return the class that is opened now: the plain one, or `home` as `module:Class`.

    The traced class is loaded by its name: it is made of the plain one, which knows nothing of it.
    """
    if not is_instrumented():
        return plain
    module, _, name = home.partition(":")
    found: type[T] = getattr(import_module(module), name)
    return found
