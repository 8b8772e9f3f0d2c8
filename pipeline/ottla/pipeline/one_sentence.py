"""Errors of a Spark worker as one line for the user, without a traceback.

Spark sends the whole traceback of a worker's Python through the JVM. If `SPARK_HIDE_TRACEBACK` is
set, it sends only the message. Errors that the user or the cluster causes are raised as
`TopicError`s with that variable set. Bugs of Ottla keep their traceback.
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
    """Error with a message of one sentence for the user of a Spark query."""


TopicError.__module__ = "ottla.pipeline"
"""Module from which users import TopicError. Spark prints it before the class name."""

NAME = f"{TopicError.__module__}.{TopicError.__qualname__}"
_SENTENCE = re.compile(rf"{re.escape(NAME)}: (.*)")


@contextmanager
def one_sentence(doing: str) -> Iterator[None]:
    """Convert every OttlaError that the `with` block raises into a TopicError, whose traceback
    Spark hides.

    `doing` describes the activity, such as "read topics", for error messages that do not name the
    activity.
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
    """Return the message of the TopicError that is the cause of an error of Spark, or None if the
    cause is another error."""
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
    """Make Spark omit the traceback of this error, for as long as the error object exists. Returns
    the error."""
    if HIDE_TRACEBACK not in os.environ:
        os.environ[HIDE_TRACEBACK] = "1"
        # The worker may run other code afterwards.
        weakref.finalize(error, os.environ.pop, HIDE_TRACEBACK, None).atexit = False
    return error
