"""Supported TLS cipher suites, under Java's and OpenSSL's names. Pure."""

from ottla.model.errors import ConfigError

TLS_1_3_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""Names of all cipher suites of TLS 1.3. Python's ssl module can only enable all of them
together."""

TLS_1_2_SUITES = {
    f"TLS_{exchange}_WITH_{java}": f"{exchange.replace('_', '-')}-{openssl}"
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
    for java, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""Supported cipher suites of TLS 1.2: OpenSSL's name by Java's name. All have forward secrecy and
authenticated encryption."""

SUITE_NAMES = frozenset({*TLS_1_3_SUITES, *TLS_1_2_SUITES, *TLS_1_2_SUITES.values()})


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 cipher suite."""
    return TLS_1_2_SUITES.get(name, name)


def check_suites(names: tuple[str, ...], key: str) -> None:
    """Raise ConfigError if a cipher suite in `names` is not supported. The error lists the
    supported suites."""
    for name in names:
        if name not in SUITE_NAMES:
            raise ConfigError(
                key,
                f"has {name!r}; it must be a list of any of "
                f"{', '.join((*TLS_1_3_SUITES, *TLS_1_2_SUITES))}",
            )
    of_1_3 = [name for name in names if name in TLS_1_3_SUITES]
    if of_1_3 and len(of_1_3) < len(TLS_1_3_SUITES):
        raise ConfigError(
            key,
            "has some suites of TLSv1.3 and not all; Python's ssl enables all three or none: "
            f"{', '.join(TLS_1_3_SUITES)}",
        )
