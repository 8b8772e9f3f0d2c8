"""The check of an address before it is looked up: no resolver raises anything but OSError then.

Python's resolver raises UnicodeError for a host such as `a..b`, and a socket OverflowError for a
port above 65,535.  Addresses are data of others: a broker's Metadata may name any.
"""

import errno
import socket

from ottla.model.settings.endpoints import PORT_MAX, is_host


def check_address(host: str, port: int) -> None:
    """Raise OSError if no address has this form."""
    if not is_host(host):
        raise socket.gaierror(socket.EAI_NONAME, "no valid host name")
    if not 0 < port <= PORT_MAX:
        raise OSError(errno.EINVAL, f"there is no port {port}")
