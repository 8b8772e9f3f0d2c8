"""Warns about settings files that contain a password and are readable by every user of the
machine."""

import stat
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.terminal import note

SECRET_ENDINGS = (
    *(".password", ".jaas.config", ".keystore.key", ".secret.key", ".client.secret"),
    *(".bearer.token", ".basic.users", ".otlp.headers"),
    *(".access.key", ".access.key.id"),
)
"""Endings of the setting keys whose values are secret, in the settings of clients and of nodes."""


def warn_of_secrets(path: Path, texts: Mapping[str, str]) -> None:
    """Warn if a settings file contains a password and every user of the machine can read it."""
    if not any(key.endswith(SECRET_ENDINGS) for key in texts):
        return
    if path.stat().st_mode & stat.S_IROTH:
        note(f"warning: every user can read {path}, which has a password; run chmod 600 {path}")
