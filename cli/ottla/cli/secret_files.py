"""Warns of files of settings with a password that every user of the machine can read."""

import stat
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.terminal import note

SECRET_ENDINGS = (
    *(".password", ".jaas.config", ".keystore.key", ".secret.key", ".client.secret"),
    *(".bearer.token", ".basic.users", ".otlp.headers"),
)
"""Ends of the keys whose values are secrets, of clients and of nodes."""


def warn_of_secrets(path: Path, texts: Mapping[str, str]) -> None:
    """Warn of a file with a password that every user of the machine can read."""
    if not any(key.endswith(SECRET_ENDINGS) for key in texts):
        return
    if path.stat().st_mode & stat.S_IROTH:
        note(f"warning: every user can read {path}, which has a password; run chmod 600 {path}")
