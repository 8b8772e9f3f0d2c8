"""Detection, when a client is opened, of OpenTelemetry providers that the program has set.

A program that has set a provider has imported the OpenTelemetry API. If the program has not
imported the API, this module does not import it either, and selects the client classes without
tracing. Tracing then costs nothing.
"""

import sys
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")

_PROVIDERS = {
    "opentelemetry.trace": "get_tracer_provider",
    "opentelemetry.metrics": "get_meter_provider",
}
"""Functions of the OpenTelemetry API that return the program's providers, by module."""


def is_instrumented() -> bool:
    """Return whether the program has set an OpenTelemetry provider of spans or metrics.

    The default providers of the OpenTelemetry API do not count, because they record nothing.
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
    """Return the client class to open. The result is the class named by `home` if the program has
    set an OpenTelemetry provider, otherwise `plain`.

    `home` has the form `module:Class`. The class is imported by name, because it is a subclass of
    `plain`, whose module must not import it.
    """
    if not is_instrumented():
        return plain
    module, _, name = home.partition(":")
    found: type[T] = getattr(import_module(module), name)
    return found
