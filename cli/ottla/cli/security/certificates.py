"""`ottla certificates ca|node|user|renew`: manages certificate authorities of the cluster, and
certificates that they issue.

Nodes and users have separate authorities, because every holder of a certificate from the nodes'
authority may join the cluster. These commands do not connect to the cluster. Files with keys are
readable by their owner only.
"""

import argparse
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import FORMAT
from ottla.cli.options import Option, option
from ottla.cli.outcomes import show
from ottla.cli.times import parse_duration
from ottla.cli.verbs import verb
from ottla.model.amounts import moment
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.model.settings.endpoints import is_host

if TYPE_CHECKING:
    from ottla.node.local.certificate_authority_driver import (
        CertificateAuthority,
        IssuedCertificate,
    )

COLUMNS = ("FILE", "FOR", "VALID-UNTIL")
NAME_LENGTH_MAX = 64
"""Maximum length of a certificate's common name in characters (X.520)."""
VALID_FOR = "824d"
RENEWED_WITHIN = "60d"


def make_authority(arguments: argparse.Namespace) -> int:
    """`ottla certificates ca`: create a certificate authority in a directory. Returns the exit
    code.

    Raises ConfigError if the directory already has an authority, because certificates of that
    authority would become untrusted.
    """
    made = _driver()
    directory = Path(arguments.directory)
    for name in (made.CA_FILE, made.CA_KEY_FILE):
        if (directory / name).exists():
            raise ConfigError("DIR", f"{directory / name} exists; an authority is never replaced")
    purpose = made.FOR_USERS if arguments.users else made.FOR_NODES
    name = _common_name(arguments.name or f"ottla {purpose}")
    authority = made.CertificateAuthority.make(name, purpose)
    authority.write(directory)
    row = _row(directory / made.CA_FILE, f"authority of {purpose}", authority.certificate)
    show(arguments, COLUMNS, [row], command="certificates")
    return 0


def issue_node(arguments: argparse.Namespace) -> int:
    """`ottla certificates node`: issue the certificate for a node, or for the nodes of one machine.
    Returns the exit code.

    Raises ConfigError if the authority does not issue certificates for nodes, or if a host name is
    invalid.
    """
    driver = _driver()
    authority = _authority(arguments, driver.FOR_NODES)
    ids: list[int] = sorted(set(arguments.ids))
    if ids[0] < 0:
        raise ConfigError("ID", f"is {ids[0]}; it must be a node.id")
    hosts = [host.strip() for text in arguments.host for host in text.split(",")]
    for host in hosts:
        if not (is_host(host) and host.isascii()):
            raise ConfigError("--host", f"is {host!r}; it must be a host name or an address")
    name = _common_name(arguments.name or hosts[0])
    path = Path(arguments.output or Path(arguments.ca) / f"node-{ids[0]}.pem")
    subject = f"node {', '.join(map(str, ids))} at {', '.join(hosts)}"
    valid_for = _duration("--valid-for", arguments.valid_for)
    issued = authority.issue(name, hosts, node_ids=ids, valid_for=valid_for)
    return _written(arguments, issued, path, subject)


def issue_user(arguments: argparse.Namespace) -> int:
    """`ottla certificates user`: issue the certificate for a user. Returns the exit code.

    Raises ConfigError if the authority does not issue certificates for users.
    """
    authority = _authority(arguments, _driver().FOR_USERS)
    name = _common_name(arguments.user)
    if arguments.output is None and Path(name).name != name:
        raise ConfigError("USER", f"is {name!r}, which is no name of a file; add --output FILE")
    path = Path(arguments.output or Path(arguments.ca) / f"{name}.pem")
    valid_for = _duration("--valid-for", arguments.valid_for)
    issued = authority.issue(name, valid_for=valid_for)
    return _written(arguments, issued, path, f"user {name}")


def renew(arguments: argparse.Namespace) -> int:
    """`ottla certificates renew`: renew certificates that expire soon, with the same subject and
    names. Returns the exit code.

    Each file is replaced as a whole, and keeps its owner and mode. Nodes use the new file within 10
    s. Raises ConfigError if another authority issued the certificate in a file. Files that precede
    this file on the command line have then been renewed.
    """
    driver = _driver()
    authority = driver.CertificateAuthority.read(Path(arguments.ca))
    until = datetime.now(UTC) + _duration("--within", arguments.within)
    rows = []
    for text in arguments.files:
        path = Path(text)
        try:
            known, status = path.read_text(), path.stat()
            is_due = arguments.all or driver.ends_at(known) <= until
            if is_due:
                valid_for = _duration("--valid-for", arguments.valid_for)
                issued = authority.renew(known, valid_for=valid_for)
                issued.write(path, like=status)
                known = issued.certificate
        except ConfigError as error:
            raise ConfigError(str(path), error.problem) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(str(path), f"cannot be renewed: {error}") from None
        rows.append(_row(path, "renewed" if is_due else "not due", known))
    show(arguments, ("FILE", "STATE", "VALID-UNTIL"), rows, command="certificates")
    return 0


def _written(
    arguments: argparse.Namespace, issued: "IssuedCertificate", path: Path, subject: str
) -> int:
    if path.exists():
        raise ConfigError("--output", f"{path} exists; 'ottla certificates renew' replaces it")
    issued.write(path)
    show(arguments, COLUMNS, [_row(path, subject, issued.certificate)], command="certificates")
    return 0


def _authority(arguments: argparse.Namespace, purpose: str) -> "CertificateAuthority":
    found: CertificateAuthority = _driver().CertificateAuthority.read(Path(arguments.ca))
    if found.purpose != purpose:
        raise ConfigError(
            "--ca", f"{arguments.ca} is an authority of {found.purpose}; name one of {purpose}"
        )
    return found


def _driver() -> Any:
    """Import and return the module that creates certificates. It requires the package
    cryptography."""
    try:
        from ottla.node.local import certificate_authority_driver
    except ImportError:
        hint = install_hint("secure")
        raise ConfigError(
            "certificates", f"needs cryptography, which is not installed; install it with: {hint}"
        ) from None
    return certificate_authority_driver


def _common_name(text: str) -> str:
    if not 0 < len(text) <= NAME_LENGTH_MAX or not text.isprintable():
        raise ConfigError(
            "name", f"is {text!r}; it must have 1 to {NAME_LENGTH_MAX} printable characters"
        )
    return text


def _duration(name: str, text: str) -> timedelta:
    return timedelta(seconds=parse_duration(name, text))


def _row(path: Path, what: str, certificate: str) -> tuple[str, str, str]:
    ends = _driver().ends_at(certificate)
    return os.fspath(path), what, moment(round(ends.timestamp() * 1_000))


CA = option("--ca DIR", "directory of the authority", required=True)
NEW_FILE = option("--output FILE", "new file with key and certificate (default: in --ca)")


def _valid_for() -> Option:
    return option(
        "--valid-for TIME", "validity of the certificate (default: %(default)s)", default=VALID_FOR
    )


VERBS = (
    verb(
        "ca",
        "create a certificate authority, of nodes or of users",
        make_authority,
        option("directory DIR", "new directory of the authority; keep its key off the nodes"),
        option("--users", "for users (default: for nodes)"),
        option("--name NAME", "name of the authority (default: ottla nodes, or ottla users)"),
        FORMAT,
    ),
    verb(
        "node",
        "issue the certificate of a node, which only that node can use",
        issue_node,
        option("ids ID ...", "node.id of the node; several of one machine may share it", type=int),
        option(
            "--host HOST,… ...",
            "names and addresses by which clients and nodes reach the node; may be repeated",
            required=True,
        ),
        option("--name NAME", "common name, by which ACLs name the node (default: first --host)"),
        NEW_FILE,
        _valid_for(),
        CA,
        FORMAT,
    ),
    verb(
        "user",
        "issue the certificate of a user",
        issue_user,
        option("user USER", "common name, by which ACLs name the user: User:CN=USER"),
        NEW_FILE,
        _valid_for(),
        CA,
        FORMAT,
    ),
    verb(
        "renew",
        "renew certificates that end soon, with new keys and the same names",
        renew,
        option("files FILE ...", "file with key and certificate, replaced in place"),
        option(
            "--within TIME",
            "renew those that end within this time (default: %(default)s)",
            default=RENEWED_WITHIN,
        ),
        option("--all", "renew all of them"),
        _valid_for(),
        CA,
        FORMAT,
    ),
)
