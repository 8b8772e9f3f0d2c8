"""Roles of the console's users, from the command line and from a file. Pure.

The file has one line for each user, in TOML: `alice = "admin"`.
"""

import tomllib
from collections.abc import Iterable, Mapping

from ottla.console.page_types import UserRole
from ottla.model.errors import ConfigError
from ottla.model.values import frozen

NAMES = {role.name.lower(): role for role in UserRole}


@frozen(kw_only=True)
class RoleTable:
    """Roles in the console by user name, and the default role for users without an entry."""

    by_user: Mapping[str, UserRole]
    default: UserRole

    def role_of(self, user: str) -> UserRole:
        """Return the console role of a user."""
        return self.by_user.get(user, self.default)


def parse_role(text: str, source: str) -> UserRole:
    """Return the console role with this name. Raises ConfigError, which names `source`, if no role
    has this name."""
    role = NAMES.get(text)
    if role is None:
        raise ConfigError(source, f"is {text!r}; it must be one of {', '.join(NAMES)}")
    return role


def parse_roles(texts: Iterable[str], file_text: str, file_name: str) -> dict[str, UserRole]:
    """Return the console roles by user, from texts `USER=ROLE` and from the text of a file. If a
    user is in both, the role in `texts` applies."""
    try:
        rows = tomllib.loads(file_text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("--role-file", f"{file_name} is not TOML: {error}") from None
    roles = {}
    for user, role in rows.items():
        if not isinstance(role, str):
            raise ConfigError("--role-file", f'{file_name}: {user} must be a text such as "viewer"')
        roles[user] = parse_role(role, f"--role-file {file_name}: {user}")
    for text in texts:
        user, equals, role = text.rpartition("=")
        if not equals or not user:
            raise ConfigError("--role", f"is {text!r}; it must be USER=ROLE")
        roles[user] = parse_role(role, f"--role {user}")
    return roles
