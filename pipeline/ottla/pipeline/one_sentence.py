"""What goes wrong in a Spark worker reaches the user as one sentence.

Spark sends the whole traceback of a worker's Python through the JVM; where `SPARK_HIDE_TRACEBACK`
is set it sends the error's own words.  Errors that are the user's or the cluster's leave our code
as `TopicError`s with that variable set; our own bugs keep their traceback.
"""

import os
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import OttlaError, RefusedError, only_error

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class TopicError(Exception):
    """One sentence about topics, for the person who runs the query."""


TopicError.__module__ = "ottla.pipeline"
"""Where users find it: Spark writes the module before the name."""

NAME = f"{TopicError.__module__}.{TopicError.__qualname__}"
_SENTENCE = re.compile(rf"{re.escape(NAME)}: (.*)")


@contextmanager
def one_sentence(doing: str) -> Iterator[None]:
    """Raise TopicError, without a traceback in Spark, for every OttlaError.

    `doing` says what was under way, for the errors that do not tell: "read topics".
    """
    try:
        yield
    except TopicError:
        raise
    except Exception as error:
        sentence = _sentence(only_error(error), doing)
        if sentence is None:
            raise
        raise _hidden(TopicError(sentence)) from None


def sentence_of(error: BaseException) -> str | None:
    """Return our sentence out of what Spark made of it; None where it is nothing of ours."""
    if isinstance(error, TopicError):
        return str(error)
    found = _SENTENCE.search(str(error))
    return None if found is None else found[1].strip()


def _sentence(error: BaseException, doing: str) -> str | None:
    if isinstance(error, RefusedError):
        text = error.message
    elif isinstance(error, ConnectionLostError):
        text = f"can not {doing}: {error}"
    elif isinstance(error, OttlaError):
        text = str(error)
    else:
        return None
    return " ".join(text.split())


def _hidden(error: TopicError) -> TopicError:
    """Have Spark leave the traceback out for as long as this error lives."""
    if HIDE_TRACEBACK not in os.environ:
        os.environ[HIDE_TRACEBACK] = "1"
        # A worker may be used again, by code that is not ours.
        weakref.finalize(error, os.environ.pop, HIDE_TRACEBACK, None).atexit = False
    return error
