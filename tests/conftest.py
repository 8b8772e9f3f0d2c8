"""What holds for every test: speed is measured in `bench/` and asserted nowhere.

So hypothesis neither fails a test for a slow machine nor for data that took long to make, and what
only computes, or waits for a Spark that does, has more time until it counts as hung.

Hypothesis draws half as many examples as by its own default, a fresh half in each run; all of them
with OTTLA_FAULTS=full.
"""

import gc
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, settings

from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS
from ottla.model.compiled import installed_form

COMPUTING = ("pipeline", "jepsen")
"""Folders of tests that run behind all others (`.ci/run`), on cores that are busy elsewhere."""
COMPUTING_TIMEOUT_S = 1_200

# Tests that start a JVM or a node fork beside gRPC's threads: the child must get to its exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=100 if os.environ.get("OTTLA_FAULTS") == "full" else 50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that only compute more time than the default, unless they have their own.

    Skip those that replace parts of compiled modules: compiled code calls the parts directly.
    """
    here = Path(__file__).parent
    is_compiled = installed_form() == "compiled"
    for item in items:
        replacing = item.get_closest_marker("interpreted_only")
        if replacing is not None and is_compiled:
            reason = f"not on the compiled form: {replacing.args[0]}"
            item.add_marker(pytest.mark.skip(reason=reason))
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if folder in COMPUTING and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPUTING_TIMEOUT_S))


def pytest_collection_finish() -> None:
    """Leave the tests themselves and all modules out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logins_end_with_their_test() -> Iterator[None]:
    """Take back as whom a test asked: the brokers of the next one know no such user."""
    login, encryption = LOGIN.get(), TLS.get()
    yield
    LOGIN.set(login)
    TLS.set(encryption)


class CertificateAuthority:
    """A CA of tests: makes PEM files as a node, a client or an operator has them."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._ca = trustme.CA(organization_name=name)
        self._directory = directory
        self._numbers = count(1)
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(
        self,
        *hosts: str,
        common_name: str | None = None,
        unit: str | None = None,
        starts_in: timedelta = -timedelta(days=1),
        ends_in: timedelta = timedelta(days=30),
    ) -> Path:
        """Return a new file with a private key and a certificate for hosts."""
        now = datetime.now(UTC)
        leaf = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")),
            common_name=common_name,
            organization_unit_name=unit or "tests",
            not_before=now + starts_in,
            not_after=now + ends_in,
        )
        path = self._directory / f"{self.file.stem}-{next(self._numbers)}.pem"
        self._write(path, leaf.private_key_and_cert_chain_pem.bytes())
        return path

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        path.touch(mode=0o600)
        path.write_bytes(data)


@pytest.fixture(scope="session")
def new_authority(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], CertificateAuthority]:
    """Return what makes another CA, in a directory of its own."""
    return lambda name: CertificateAuthority(tmp_path_factory.mktemp("authority"), name)


@pytest.fixture(scope="session")
def authority(new_authority: Callable[[str], CertificateAuthority]) -> CertificateAuthority:
    """Return the CA that the tests of a session share."""
    return new_authority("ca")
