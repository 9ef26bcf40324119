# SPDX-License-Identifier: MIT
"""Checks of this host: configuration, owners and modes of files, our packages, the agents that run."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent.config.model import Settings, Severity
from agent.core.checks import Check, ok, problem, warning
from agent.host import packages, running
from agent.run.diagnosis.probes import Probe
from agent.run.service import configuration, services

OTHERS = 0o077
WRITE_BY_OTHERS = 0o022


def without_settings(config_file: Path | None, environ: Mapping[str, str]) -> Iterator[Probe]:
    """Yield what can be checked with a configuration that cannot be used."""
    yield Probe("packages", _packages, packages.REMEDY)
    yield Probe("configuration", lambda: _configuration(config_file, environ), "correct the file")


def probes(settings: Settings, config_file: Path | None, environ: Mapping[str, str]) -> Iterator[Probe]:
    yield from without_settings(config_file, environ)
    yield Probe("files", lambda: _files(settings), "give the files to the user that the services run as")
    yield Probe("services", lambda: _services(settings), "run this as root, who may list all processes")


def _packages() -> Iterator[Check]:
    found = packages.foreign_modules()
    for sentence in found:
        said, _, remedy = sentence.rpartition("; ")
        yield problem("packages", said or sentence, remedy)
    if not found:
        yield ok("packages", "agent, backends, tasks and the other modules are ours")
    program = shutil.which("sacctmgr")
    if program and Path(program).parent == Path(sys.executable).parent:
        yield warning(
            "packages",
            f"`sacctmgr` on PATH is an emulator's ({program}): it came with the extra `demo` or the lock of developers",
            f"pip uninstall slurm-emulator, or take {Path(program).parent} off the front of PATH",
        )


def _configuration(config_file: Path | None, environ: Mapping[str, str]) -> Iterator[Check]:
    loaded = configuration.checked(config_file, environ, strict=True)
    for each in loaded.problems:
        make = warning if each.severity is Severity.WARNING else problem
        yield make(
            "configuration", str(each), "correct the line; `config-check` shows the file as it is understood"
        )
    if not loaded.problems and loaded.settings:
        yield ok("configuration", f"{loaded.settings.source} has no errors")


def _files(settings: Settings) -> Iterator[Check]:
    source = Path(settings.source)
    if source.is_file():
        yield _private("configuration file", source, "it holds tokens")
    yield from _state_dir(settings.state_dir)


def _services(settings: Settings) -> Iterator[Check]:
    """Report agents of this host that do not go together; what another host runs cannot be seen here."""
    found = services.clashes(settings, running.agents())
    for sentence in found:
        yield warning("services", sentence, "docs/migrate.md lists which services go together")
    if not found:
        yield ok("services", "no agents of this host do each other's work")


def _private(what: str, path: Path, why: str) -> Check:
    """Check that only the owner, and a group that was chosen, may read a file, and only the owner may write."""
    found = path.stat()
    said = f"the {what} {path} belongs to {_user(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}"
    if found.st_mode & WRITE_BY_OTHERS:
        return problem("files", f"{said}: others may change it, and {why}", f"chmod 0600 {path}")
    if not os.access(path, os.R_OK):
        return problem(
            "files", f"{said}: {_user(os.geteuid())} may not read it", "chown it to the user of the services"
        )
    return ok("files", said)


def _state_dir(folder: Path) -> Iterator[Check]:
    if not folder.exists():
        yield warning(
            "files",
            f"state_dir {folder} does not exist yet",
            "the first pass makes it; or make it for the user of the services",
        )
        return
    found = folder.stat()
    said = f"state_dir {folder} belongs to {_user(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}"
    if found.st_mode & WRITE_BY_OTHERS:
        yield problem("files", f"{said}: others may change what the agent remembers", f"chmod 0700 {folder}")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield problem(
            "files",
            f"{said}: {_user(os.geteuid())} may not write there",
            f"run this, and the services, as {_user(found.st_uid)}",
        )
    else:
        yield ok("files", said)
    for path in sorted(folder.glob("*")):
        status = path.lstat()
        if status.st_uid not in (found.st_uid, 0) or (status.st_mode & OTHERS and path.is_file()):
            mode = f"{stat.S_IMODE(status.st_mode):04o}"
            yield warning(
                "files",
                f"{path} belongs to {_user(status.st_uid)}, mode {mode}",
                f"chown {_user(found.st_uid)} {path} && chmod 0600 {path}",
            )
        elif status.st_uid == 0 != found.st_uid:
            yield problem(
                "files",
                f"{path} belongs to root, and the services run as {_user(found.st_uid)}",
                f"chown {_user(found.st_uid)} {path}",
            )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
