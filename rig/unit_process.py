# SPDX-License-Identifier: MIT
"""A systemd unit without systemd: its command as it stands, in a mount namespace where all is installed as documented,
with the environment, the user, the folders and the socket that systemd would give it, and killed as systemd would.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from agent.host.waiting import GIVE_UP_S
from rig import processes, reaper
from rig.processes import REPOSITORY, tail, wait_until

UNITS = REPOSITORY / "systemd"
CONFIG = "/etc/waldur/waldur-site-agent-config.yaml"
# No user of any machine.
SERVICE_UID = 61_184
WATCHDOG_S = 1.5


def sections(unit: Path) -> dict[str, dict[str, list[str]]]:
    """Return the sections of a unit file; a key may stand several times."""
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return found


class UnitProcess:
    """One unit of `systemd/`, started by `start`. `name` may be an instance's (`waldur-site-worker@QUEUE.service`), or
    lead to another folder (`../systemd-conf/agent-report/agent.service`).
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        config: Path | None,
        variables: Mapping[str, str],
        *,
        config_uid: int = 0,
        etc: Mapping[str, Path] | None = None,
    ) -> None:
        """`variables` is what the operator has in the environment file; `config_uid` owns the configuration file.
        `etc`: more files of root's, by their place below /etc.
        """
        template, _, rest = name.partition("@")
        self.instance = rest.removesuffix(".service")
        self.unit = UNITS / (f"{template}@.service" if rest else name)
        self.service = sections(self.unit)["Service"]
        self.folder = folder
        self.log = folder / "unit.log"
        self.messages: list[str] = []
        self._config, self._config_uid, self._variables = config, config_uid, dict(variables)
        self._etc = dict(etc or {})
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def start(self) -> UnitProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Of its own in the network namespace, not in a file system that the command sees otherwise than we do.
        self._socket.bind(f"\0waldur-unit-{os.getpid()}-{id(self)}")
        threading.Thread(target=self._receive, name=self.unit.name, daemon=True).start()
        (self.folder / "environment").write_text(
            "".join(f'{name}="{value}"\n' for name, value in self._variables.items())
        )
        (self.folder / "environment").chmod(0o600)
        self._process = processes.start(
            ["unshare", "--mount", "sh", "-euc", self._script()], log=self.log, env=os.environ
        )
        return self

    def _receive(self) -> None:
        """Read at once, as systemd does: a socket of its kind holds ten messages."""
        with suppress(OSError):
            while received := self._socket.recv(65536):
                self.messages += received.decode().splitlines()

    def wait_for(self, line: str, times: int = 1) -> None:
        """Wait until the unit has sent a line to systemd so often; raises NeverCame with its log."""
        wait_until(
            f"{line} of {self.unit.name}",
            lambda: self.messages.count(line) >= times,
            self._process,
            self.log,
        )

    def output(self) -> str:
        """Return what the unit has written, to the journal or to its own file."""
        own = sorted((self.folder / "logs").rglob("*.log"))
        return "".join(tail(log, 10**9) for log in [self.log, *own])

    def wait_for_end(self) -> int:
        """Return the exit code."""
        return self.process.wait(GIVE_UP_S)

    def terminate(self) -> None:
        """As `systemctl stop` begins."""
        self._kill(signal.SIGTERM)

    def kill(self) -> None:
        """As `systemctl stop` ends when TimeoutStopSec is over."""
        self._kill(signal.SIGKILL)
        self.process.wait()

    def _kill(self, number: signal.Signals) -> None:
        """By KillMode: `process` is the main process only, `mixed` all when it is SIGKILL, the default always all."""
        (mode,) = self.service.get("KillMode", ["control-group"])
        is_main_only = mode == "process" or (mode == "mixed" and number is signal.SIGTERM)
        others = [] if is_main_only else reaper.descendants(self.process.pid)
        for pid in (self.process.pid, *others):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """End what still runs, and show the log."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                for pid in (self._process.pid, *reaper.descendants(self._process.pid)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._process.wait()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
        self._socket.close()
        print(f"{self.unit.name}: {self.messages}\n{self.output()[-2000:]}")

    def _script(self) -> str:
        """The namespace, and then the command in place of this shell: its pid is that of the unit's main process."""
        venv = Path(sys.executable).parents[1]
        lines = [
            "umask 022",
            # Whatever this machine has there stays untouched.
            "mount -t tmpfs -o mode=755 tmpfs /run",
            "mount -t tmpfs -o mode=755 tmpfs /srv",
            *(
                f"mkdir -p /srv/{n}/new /srv/{n}/work && mount -t overlay overlay "
                f"-o lowerdir={place},upperdir=/srv/{n}/new,workdir=/srv/{n}/work {place}"
                for n, place in enumerate(["/etc", "/opt", "/var", *_closed_folders()])
            ),
            "rm -rf /opt/waldur-site-cluster",
            f"ln -s {shlex.quote(str(venv))} /opt/waldur-site-cluster",
            "rm -rf /etc/waldur && mkdir -m 755 /etc/waldur",
            f"install -m 600 {shlex.quote(str(self.folder / 'environment'))} /etc/waldur/site-cluster.env",
        ]
        if self._config is not None:
            owner = f"-o {self._config_uid} -g {self._config_uid}"
            lines.append(f"install -m 600 {owner} {shlex.quote(str(self._config))} {CONFIG}")
        uid = 0 if self.service.get("User") == ["root"] else SERVICE_UID
        environment = dict(self._folders(uid, lines))
        for assignment in self.service["Environment"]:
            environment.update(part.split("=", 1) for part in shlex.split(self._expanded(assignment)))
        for place, file in self._etc.items():
            lines.append(f"install -D -m 600 {shlex.quote(str(file))} /etc/{place}")
        for place in self.service.get("EnvironmentFile", ()):
            if place == "-/etc/waldur/site-cluster.env":
                environment.update(self._variables)
                continue
            for line in self._etc[place.removeprefix("/etc/")].read_text().splitlines():
                if line and not line.startswith(("#", ";")):
                    name, _, value = line.partition("=")
                    environment[name] = value
        (address,) = (self._socket.getsockname().decode(),)
        if self.service.get("Type") == ["notify"]:
            environment["NOTIFY_SOCKET"] = "@" + address[1:]
            environment["WATCHDOG_USEC"] = str(int(WATCHDOG_S * 1e6))
        (command,) = self.service["ExecStart"]
        words = shlex.split(self._expanded(command))
        # The kernel ends it with the test, which a change of the user would have undone.
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--pdeathsig=KILL"]
        assignments = [f"{name}={value}" for name, value in environment.items()]
        return "\n".join(
            [
                *lines,
                f"cd / && umask {self.service.get('UMask', ['022'])[0]}",
                "exec " + shlex.join(["env", "-i", *assignments, *user, *words]),
            ]
        )

    def _folders(self, uid: int, lines: list[str]) -> Iterable[tuple[str, str]]:
        """Make the folders that the unit asks for, by lines of the script; yield the variables that name them."""
        for key, variable, place in (
            ("StateDirectory", "STATE_DIRECTORY", "/var/lib"),
            ("RuntimeDirectory", "RUNTIME_DIRECTORY", "/run"),
        ):
            for name in self.service.get(key, ()):
                lines.append(f"install -d -m 700 -o {uid} -g {uid} {place}/{name}")
                yield variable, f"{place}/{name}"
        for credential in self.service.get("LoadCredential", ()):
            name, _, source = credential.partition(":")
            folder = self._expanded("%d")
            lines.append(f"install -d -m 500 -o {uid} -g {uid} {folder}")
            lines.append(f"install -m 400 -o {uid} -g {uid} {source} {folder}/{name}")
            yield "CREDENTIALS_DIRECTORY", folder
        # Legacy units log to files: they are read when the namespace is gone.
        logs = shlex.quote(str(self.folder / "logs"))
        lines.append(f"install -d {logs} && mount --bind {logs} /var/log")
        # What tmpfiles.d makes for units that make nothing themselves.
        for rules in sorted(UNITS.glob("tmpfiles.d/*.conf")):
            for line in rules.read_text().splitlines():
                if line.startswith("d "):
                    _, folder, mode, user, *_ = line.split()
                    owner = 0 if user == "root" else SERVICE_UID
                    lines.append(f"install -d -m {mode} -o {owner} -g {owner} {folder}")

    def _expanded(self, text: str) -> str:
        """Replace systemd's specifiers that our units use."""
        for specifier, value in (
            ("%d", f"/run/credentials/{self.unit.name}"),
            ("%i", self.instance),
            ("%H", socket.gethostname()),
        ):
            text = text.replace(specifier, value)
        assert "%" not in text, text
        return text


def _closed_folders() -> list[str]:
    """Folders above this checkout and its Python that other users may not enter, which an overlay opens to them."""
    places = [*REPOSITORY.parents, *Path(sys.executable).resolve().parents]
    return sorted({str(place) for place in places if not place.stat().st_mode & stat.S_IXOTH})
