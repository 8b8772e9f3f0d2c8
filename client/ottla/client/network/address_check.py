"""Validation of addresses. After this validation, resolving an address raises no error other than
OSError.

Python's resolver raises UnicodeError for a host such as `a..b`, and a socket raises OverflowError
for a port above 65,535. Addresses are untrusted, because the Metadata response of a broker may
contain any text.
"""

import errno
import socket

from ottla.model.settings.endpoints import PORT_MAX, is_host


def check_address(host: str, port: int) -> None:
    """Raise OSError if a host name or port is malformed."""
    if not is_host(host):
        raise socket.gaierror(socket.EAI_NONAME, "no valid host name")
    if not 0 < port <= PORT_MAX:
        raise OSError(errno.EINVAL, f"there is no port {port}")
