"""How a client reaches brokers that ask who it is, in the keys of Kafka and of librdkafka."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, load, setting
from ottla.model.settings.jaas import JaasLogin, parse_jaas
from ottla.model.settings.sasl import MODULES, SASL_PLAINTEXT, SERVED_MECHANISMS, SaslLogin

PROTOCOLS = ("PLAINTEXT", SASL_PLAINTEXT)
LIBRDKAFKA_MECHANISM = "sasl.mechanisms"
SECURITY_PREFIXES = ("sasl.", "ssl.", "security.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """What a client says of itself to brokers that ask."""

    security_protocol: str = setting(
        "PLAINTEXT",
        key="security.protocol",
        one_of=PROTOCOLS,
        doc="How brokers are reached: without a login, or with one. TLS is not served yet.",
    )
    sasl_mechanism: str | None = setting(
        None,
        key="sasl.mechanism",
        kind=SettingKind.STRING,
        one_of=SERVED_MECHANISMS,
        doc="How the client logs in.",
    )
    sasl_username: str | None = setting(
        None, key="sasl.username", kind=SettingKind.STRING, doc="Who the client is."
    )
    sasl_password: str | None = setting(
        None, key="sasl.password", kind=SettingKind.PASSWORD, doc="The user's password."
    )
    sasl_jaas_config: JaasLogin | None = setting(
        None,
        key="sasl.jaas.config",
        kind=SettingKind.PASSWORD,
        parse=parse_jaas,
        doc="A login module with username and password, as the Java client has it, in place of "
        "sasl.username and sasl.password.",
    )

    def login(self) -> SaslLogin | None:
        """Return how the client logs in, None where it does not; ConfigError where it cannot."""
        if self.security_protocol not in PROTOCOLS:
            raise ConfigError(
                "security.protocol",
                f"is {self.security_protocol!r}; it must be one of {', '.join(PROTOCOLS)}",
            )
        if self.security_protocol != SASL_PLAINTEXT:
            if self.sasl_mechanism or self.sasl_username or self.sasl_jaas_config:
                raise ConfigError(
                    "security.protocol", f"is not {SASL_PLAINTEXT}, and settings of sasl. are given"
                )
            return None
        mechanism = self.sasl_mechanism
        if mechanism not in SERVED_MECHANISMS:
            raise ConfigError(
                "sasl.mechanism",
                f"is {mechanism or 'not set'}; it must be one of {', '.join(SERVED_MECHANISMS)}",
            )
        username, password = self.sasl_username, self.sasl_password
        if self.sasl_jaas_config is not None:
            if self.sasl_jaas_config.module != MODULES[mechanism]:
                raise ConfigError("sasl.jaas.config", f"must be of {MODULES[mechanism]}")
            options = self.sasl_jaas_config.options
            username, password = options.get("username"), options.get("password")
        if not username or not password:
            raise ConfigError("sasl.username", "is not set; give sasl.username and sasl.password")
        return SaslLogin(mechanism, username, password)


def login_of(texts: Mapping[str, str]) -> SaslLogin | None:
    """Return how a client logs in, from settings of Kafka or librdkafka.

    Raises ConfigError for what cannot be honoured, without showing what may be a password.
    """
    texts = {
        "sasl.mechanism" if key == LIBRDKAFKA_MECHANISM else key: text
        for key, text in texts.items()
    }
    try:
        security, unknown = load(ClientSecurity, texts)
    except ConfigError as error:
        if error.setting == "sasl.jaas.config":
            raise ConfigError(error.setting, "is no login module") from None
        raise
    for key in sorted(unknown):
        raise ConfigError(key, "is no setting of a client's login that can be honoured")
    return security.login()
