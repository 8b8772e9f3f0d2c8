"""Settings of the object store: each mistake gets a sentence, and none shows a credential."""

import pytest

from ottla.model.errors import ConfigError
from ottla.storage.tier.object_names import SegmentNames, SegmentObject
from ottla.storage.tier.store_seam import KEY_BYTES_MAX
from ottla.storage.tier.store_settings import (
    PREFIX_CHARS_MAX,
    StoreLocation,
    StoreScheme,
    StoreSettings,
    checked_location,
    parse_store_uri,
)
from tests.storage.tier.segments import LONGEST_NAMES

SECRET = "the-secret-value"


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("s3://bucket", StoreLocation(StoreScheme.S3, "bucket", "")),
        ("s3://bucket/", StoreLocation(StoreScheme.S3, "bucket", "")),
        ("s3://my.bucket-1/a/b/", StoreLocation(StoreScheme.S3, "my.bucket-1", "a/b")),
        ("gs://bucket_2/Prefix", StoreLocation(StoreScheme.GOOGLE, "bucket_2", "Prefix")),
        ("az://container/p", StoreLocation(StoreScheme.AZURE, "container", "p")),
        ("file:///mnt/tier", StoreLocation(StoreScheme.FILE, "", "/mnt/tier")),
        ("file:///mnt/my tier/", StoreLocation(StoreScheme.FILE, "", "/mnt/my tier")),
        ("memory:", StoreLocation(StoreScheme.MEMORY, "", "")),
    ],
)
def test_a_uri_is_a_location(uri: str, location: StoreLocation) -> None:
    assert parse_store_uri(uri) == location


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "s3",
        "/mnt/tier",
        "http://bucket/x",
        "S3://bucket",
        "s3:bucket",
        "s3:/bucket",
        "s3://",
        "s3:///prefix",
        "s3://Bucket",
        f"s3://id:{SECRET}@bucket/x",
        f"s3://bucket/x?secret={SECRET}",
        "s3://bucket//x",
        "s3://bucket/a//b",
        "s3://bucket/../x",
        "s3://bucket/x%20y",
        "s3://bucket/" + "x" * (PREFIX_CHARS_MAX + 1),
        "file:relative",
        "file://host/path",
        "file:///",
        "file://",
        "file:////x",
        "file:///a/../b",
        "file:///a%20b",
        "file:///a\nb",
        "memory://x",
    ],
)
def test_a_wrong_uri_is_refused_without_quoting_it(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"^remote\.log\.storage\.uri: ") as caught:
        parse_store_uri(uri)
    assert SECRET not in str(caught.value)


def test_credentials_are_in_no_representation() -> None:
    settings = StoreSettings(
        uri="s3://bucket", access_key_id="the-id-value", secret_access_key=SECRET
    )
    assert SECRET not in repr(settings)
    assert "the-id-value" not in repr(settings)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (StoreSettings(uri="s3://bucket", access_key_id="a"), "secret.access.key"),
        (StoreSettings(uri="az://bucket", secret_access_key=SECRET), "access.key.id"),
        (
            StoreSettings(uri="gs://bucket", access_key_id="a", secret_access_key=SECRET),
            "access.key.id",
        ),
        (StoreSettings(uri="gs://bucket", region="eu"), "region"),
        (StoreSettings(uri="file:///x", secret_access_key=SECRET), "secret.access.key"),
        (StoreSettings(uri="memory:", ca_file="/ca.pem"), "ca.file"),
        (StoreSettings(uri="file:///x", endpoint="http://a"), "endpoint"),
        (StoreSettings(uri="s3://bucket", endpoint="host:9000"), "endpoint"),
        (StoreSettings(uri="s3://bucket", endpoint=f"http://a:{SECRET}@host"), "endpoint"),
        (StoreSettings(uri="s3://bucket", endpoint="https://host/path"), "endpoint"),
    ],
)
def test_a_setting_that_contradicts_the_uri_is_refused(settings: StoreSettings, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_location(settings)
    assert caught.value.setting == f"remote.log.storage.{key}"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        StoreSettings(uri="s3://bucket"),
        StoreSettings(
            uri="s3://bucket/x",
            access_key_id="a",
            secret_access_key=SECRET,
            endpoint="https://[::1]:9000/",
            region="eu-1",
            ca_file="/ca.pem",
        ),
        StoreSettings(uri="gs://bucket", secret_access_key="{}", endpoint="http://host:1"),
        StoreSettings(uri="az://bucket", access_key_id="a", secret_access_key=SECRET),
    ],
)
def test_settings_that_fit_are_accepted(settings: StoreSettings) -> None:
    assert checked_location(settings) == parse_store_uri(settings.uri)


def test_the_longest_key_fits_below_the_longest_prefix() -> None:
    assert isinstance(LONGEST_NAMES, SegmentNames)
    longest = max(len(LONGEST_NAMES.key(kind)) for kind in SegmentObject)
    assert PREFIX_CHARS_MAX + 1 + longest <= KEY_BYTES_MAX
