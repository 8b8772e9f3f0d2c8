"""The Java for Spark: the user's own choice if it fits, otherwise an installed one, or one
sentence."""

from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.pipeline.java import Java, feature_version, find_java, javas, read_release

MODULES = "java.base jdk.incubator.vector java.sql"


def installed(home: Path, version: str, modules: str = MODULES, *, tells: bool = True) -> str:
    """Create a Java at a directory: a release file, or a program that prints the same."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    listed = "\\n".join(f"{name}@{version}" for name in modules.split())
    program.write_text(
        "#!/bin/sh\n"
        f"""[ "$1" = -version ] && echo 'openjdk version "{version}" 2025-04-15' >&2\n"""
        f"""[ "$1" = --list-modules ] && printf '{listed}\\n'\n"""
    )
    program.chmod(0o755)
    if tells:
        release = f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n'
        (home / "release").write_text(release)
    return str(home)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def found(place: Path, **environ: str) -> Java:
    """Find a Java on a machine that has only the files of the test."""
    return find_java({"PATH": "", **environ}, [f"{place}/jvm/*"])


def test_the_users_own_java_comes_before_one_on_the_path_and_one_that_lies_about(
    place: Path,
) -> None:
    named = installed(place / "named", "21.0.2")
    on_path = installed(place / "path", "17.0.1")
    installed(place / "jvm" / "a", "17.0.15")
    java = found(place, JAVA_HOME=named, PATH=f"{on_path}/bin")
    assert java == Java(named, 21, "21.0.2", True, "JAVA_HOME")
    assert found(place, PATH=f"{on_path}/bin").found_by == "PATH"


def test_a_link_on_the_path_is_followed_to_the_java_it_belongs_to(place: Path) -> None:
    home = installed(place / "jvm" / "java-17", "17.0.15")
    (place / "bin").mkdir()
    (place / "bin" / "java").symlink_to(f"{home}/bin/java")
    assert found(place, PATH=f"{place}/bin").home == home
    # The same one, found by two ways, is one.
    assert len(list(javas({"PATH": f"{place}/bin"}, [f"{place}/jvm/*"]))) == 1


@pytest.mark.parametrize(
    ("version", "modules"),
    [("11.0.2", MODULES), ("1.8.0_402", ""), ("17.0.15", "java.base java.sql")],
    ids=["old", "very old", "trimmed"],
)
def test_a_java_that_does_not_do_gives_way_to_one_that_does(
    place: Path, version: str, modules: str
) -> None:
    unfit = installed(place / "named", version, modules)
    good = installed(place / "jvm" / "good", "17.0.15")
    assert found(place, JAVA_HOME=unfit).home == good


def test_of_those_that_lie_about_spark_gets_what_it_is_tested_with(place: Path) -> None:
    for name, version in (("a", "25.0.3"), ("b", "21.0.1"), ("c", "17.0.2"), ("d", "11.0.1")):
        installed(place / "jvm" / name, version)
    order = [java.version for java in javas({"PATH": ""}, [f"{place}/jvm/*"])]
    assert order == [17, 21, 11, 25]
    assert found(place).version == 17


def test_a_java_without_a_release_file_is_asked_itself(place: Path) -> None:
    home = installed(place / "named", "17.0.9", tells=False)
    assert found(place, JAVA_HOME=home) == Java(home, 17, "17.0.9", True, "JAVA_HOME")


def test_a_directory_without_a_java_or_with_one_that_says_nothing_is_none(place: Path) -> None:
    (place / "jvm" / "empty").mkdir(parents=True)
    silent = place / "jvm" / "silent" / "bin" / "java"
    silent.parent.mkdir(parents=True)
    silent.write_text("no program")
    silent.chmod(0o755)
    with pytest.raises(ConfigError, match="no Java was found here"):
        found(place, JAVA_HOME=str(place / "nowhere"))


def test_where_none_does_each_is_named_with_its_fault_and_the_cure(place: Path) -> None:
    old = installed(place / "old", "11.0.2")
    trimmed = installed(place / "jvm" / "slim", "17.0.15", "java.base")
    with pytest.raises(ConfigError) as raised:
        found(place, JAVA_HOME=old)
    assert str(raised.value) == (
        f"JAVA_HOME: {old} is Java 11, and Spark needs 17; {trimmed} is a trimmed Java 17 without "
        "the module jdk.incubator.vector; install a full Java 17 (such as Debian's "
        "openjdk-17-jdk-headless), or set JAVA_HOME to one"
    )


def test_versions_are_read_as_every_java_writes_them() -> None:
    texts = ["17.0.15", "17", "21-ea", "25.0.3+9-LTS", "1.8.0_402", "1.8"]
    assert [feature_version(text) for text in texts] == [17, 17, 21, 25, 8, 8]
    assert feature_version("no version") is None


def test_a_release_file_that_leaves_the_modules_out_tells_nothing_of_a_new_java() -> None:
    assert read_release('JAVA_VERSION="17.0.1"\n') is None
    assert read_release('JAVA_VERSION="1.8.0_402"\n') == ("1.8.0_402", frozenset())
    assert read_release("") is None
