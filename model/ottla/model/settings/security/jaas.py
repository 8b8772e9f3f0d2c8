"""The setting `sasl.jaas.config`: one login module in Kafka's syntax (`MODULE required key="value"
…;`). Pure.

Errors never contain passwords.
"""

import re
from dataclasses import field

from ottla.model.values import frozen

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FLAGS = ("required", "requisite", "sufficient", "optional")
USER_PREFIX = "user_"

_HEAD = re.compile(r"\s*([\w.$]+)\s+(\w+)(?=[\s;])")
_OPTION = re.compile(
    r"""\s*([\w.\-@/+%]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@frozen
class JaasLogin:
    """Login module of a `sasl.jaas.config`: its Java class name and its options."""

    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """Passwords by user name, for a server's login module that lists the users who may log
        in."""
        return {
            key.removeprefix(USER_PREFIX): value
            for key, value in self.options.items()
            if key.startswith(USER_PREFIX) and key != USER_PREFIX
        }


def parse_jaas(text: str) -> JaasLogin:
    """one login module, MODULE required key="value" …;

    Returns the login module and its options. Raises ValueError if the text is malformed. Error
    messages quote the first line as the description of valid texts.
    """
    head = _HEAD.match(text)
    if head is None or head[2].lower() not in FLAGS:
        raise ValueError
    options: dict[str, str] = {}
    at = head.end()
    while (found := _OPTION.match(text, at)) is not None:
        key, double, single, bare = found.groups()
        quoted = double if double is not None else single
        value = bare if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        if key in options:
            raise ValueError
        options[key] = value
        at = found.end()
    if text[at:].strip() != ";":
        raise ValueError
    return JaasLogin(head[1], options)


def _unescaped(found: "re.Match[str]") -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1])
