"""CRC-32C from the package's extension, without the modules that the package imports."""

import subprocess
import sys

import crc32c as package

from ottla.wire.crc import crc32c, load_extension


def test_it_is_the_checksum_of_kafka() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    for data in (b"", b"\0" * 32, bytes(range(256)) * 40):
        assert crc32c(data) == package.crc32c(data)
        assert crc32c(data[5:], crc32c(data[:5])) == package.crc32c(data)
        assert crc32c(memoryview(data)) == package.crc32c(data)


def test_the_extension_is_found() -> None:
    assert load_extension() is not None


def test_the_package_can_be_imported_beside_it() -> None:
    script = (
        "import sys; from ottla.wire.crc import crc32c; assert 'crc32c' not in sys.modules; "
        "import crc32c as package; assert package.crc32c(b'a') == crc32c(b'a')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
