"""An operator's first hour: docs/deploy.md on three machines and one more, typed unchanged.

A machine here is a set of namespaces: a host name, a network behind a bridge, and its own /etc,
/var/lib and /usr/local. /opt is the same on all, so the package is installed once. Two programs
that need a booted machine are replaced: `sudo`, and `systemctl`, which reads our units and follows
them.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_200)]

HERE = Path(__file__).parent
NAMES = ("one", "two", "three", "four")
SUBNET = "10.232.77"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""A login's PATH, where the Python is one that every user may run."""

Machine = Any
"""A Terminal of conftest.py."""

SET_UP = """
set -e
hostname {name}.example
ip link set lo up
mount --make-rprivate /
mount -t tmpfs tmpfs {room}
for place in etc var/lib usr/local; do
    mkdir -p {room}/$place/upper {room}/$place/work
    mount -t overlay overlay \
        -o lowerdir=/$place,upperdir={room}/$place/upper,workdir={room}/$place/work /$place
done
mount --bind {opt} /opt
printf '127.0.0.1 localhost\\n{hosts}' > /etc/hosts
for program in sudo systemctl; do install {here}/bin/$program /usr/local/bin/$program; done
set +e
"""


def can_be_tried() -> bool:
    """True on a machine on which others can be set up, with a Python for every user."""
    needed = ("unshare", "nsenter", "ip", "mount", "runuser", "useradd")
    if os.geteuid() != 0 or not all(map(shutil.which, needed)):
        return False
    python = shutil.which("python3", path=SYSTEM_PATH)
    if python is None:
        return False
    asked = [python, "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"]
    mounts = (
        "d=$(mktemp -d) && mount -t tmpfs tmpfs $d && mkdir $d/u $d/w &&"
        " mount -t overlay overlay -o lowerdir=/etc,upperdir=$d/u,workdir=$d/w /etc"
    )
    tried = (asked, ["unshare", "--mount", "--net", "--uts", "sh", "-c", mounts])
    return all(
        subprocess.run(words, check=False, capture_output=True).returncode == 0 for words in tried
    )


@contextlib.contextmanager
def bridge() -> Iterator[int]:
    """Hold a network namespace with a bridge; yield the process id by which it is entered."""
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as holder:
        try:
            wait_for_namespace(holder.pid, "net")
            enter = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
            batch = "link add bridge type bridge\nlink set bridge up\n"
            subprocess.run([*enter, "ip", "-batch", "-"], input=batch, text=True, check=True)
            yield holder.pid
        finally:
            holder.kill()


def wait_for_namespace(pid: int, kind: str) -> None:
    """Wait until a process is in a namespace other than ours."""
    while os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}"):
        time.sleep(0.01)


@pytest.fixture
def machines(
    tmp_path: Path, checkout: Path, open_terminal: Callable[..., Machine]
) -> Iterator[list[Machine]]:
    """Four machines that reach each other by name; each a terminal in a checkout."""
    if not can_be_tried():
        pytest.skip("needs root, namespaces, overlay mounts, and a Python 3.11 for every user")
    hosts = "".join(f"{SUBNET}.{at} {name}.example\\n" for at, name in enumerate(NAMES, 1))
    (tmp_path / "opt").mkdir()
    with bridge() as switch:
        opened = []
        for at, name in enumerate(NAMES, 1):
            room = tmp_path / f"room-{name}"
            room.mkdir()
            set_up = SET_UP.format(
                name=name, room=room, opt=tmp_path / "opt", hosts=hosts, here=HERE
            )
            terminal = open_terminal(
                checkout,
                prefix=("unshare", "--mount", "--net", "--uts"),
                env={"PATH": SYSTEM_PATH, "PYTHONDONTWRITEBYTECODE": "1"},
                set_up=set_up,
            )
            opened.append(terminal)
            enter = ["nsenter", f"--net=/proc/{switch}/ns/net", "ip", "-batch", "-"]
            link = (
                f"link add {name} type veth peer name eth0 netns {terminal.pid}\n"
                f"link set {name} master bridge up\n"
            )
            subprocess.run(enter, input=link, text=True, check=True)
            terminal.type(f"ip address add {SUBNET}.{at}/24 dev eth0 && ip link set eth0 up")
        try:
            yield opened
        finally:
            for terminal in opened:
                terminal.type("systemctl stop-all")


NOT_TRIED = {
    "In containers": "needs a container engine and images from the network",
    "Change the controllers": "tests/controller/test_voter_requests_of_clients.py changes voters",
    "Files of Kafka": "tests/cluster/operations/test_operators_day.py runs nodes by such files",
    "Kafka's tools at the controllers": "tests/cluster/kafka_tools runs them",
    "Many cores": "tests/cluster/operations/test_host.py runs the brokers of a host",
    "Secure a running cluster": "tests/cluster/security/test_security_migration.py secures one",
}
"""Sections that are not replayed."""

NOT_REPLAYED = {
    "sudo python3 -m venv /opt/ottla": "the machines share /opt",
    "sudo /opt/ottla/bin/pip install": "the machines share /opt",
}
"""Left out on the second and the third machine."""


def everywhere(machines: list[Machine], page: Any, heading: str, at: int = 0) -> None:
    """Type one command of a section on all machines at the same time."""
    command = page.commands(heading)[at]
    with ThreadPoolExecutor(len(machines)) as typists:
        done = [typists.submit(one.step, page, heading, command) for one in machines]
    for one in done:
        one.result()


def write_settings(machine: Machine, page: Any, at: int) -> None:
    """Type the step of the settings with a machine's own number and name."""

    def own(command: str) -> str:
        return command.replace("N=1 ", f"N={at + 1} ").replace("NAME=one", f"NAME={NAMES[at]}")

    machine.replay(page, "3. Settings, on every machine", instead=own)


def test_three_machines_are_deployed_as_the_page_says(
    machines: list[Machine], page: Any, steps: list[Any]
) -> None:
    deploy = page("docs/deploy.md")
    *machines, fourth = machines
    first, *others = machines
    first.replay(deploy, "1. Install, on every machine")
    for machine in others:
        machine.replay(deploy, "1. Install, on every machine", but=NOT_REPLAYED)
    ids = first.replay(deploy, "2. Choose ids, once, on any machine")
    for at, machine in enumerate(machines):
        for printed in ids:
            machine.type(printed.strip())
        write_settings(machine, deploy, at)
        machine.replay(deploy, "4. Format the controllers, once, on every machine")
    for line in range(2):
        everywhere(machines, deploy, "5. Start, on every machine", line)
    printed = first.replay(deploy, "6. Check")
    assert "hello" in printed[-1]
    for machine in machines:
        machine.replay(deploy, "Rolling restart")
    fourth.replay(deploy, "1. Install, on every machine", but=NOT_REPLAYED)
    write_settings(fourth, deploy, 3)
    fourth.replay(deploy, "One broker more")
    printed = fourth.replay(deploy, "One broker less")
    assert printed[-1].startswith("healthy")
    replayed = {step.heading for step in steps if step.page == deploy.name}
    assert replayed | NOT_TRIED.keys() == set(deploy.sections())
