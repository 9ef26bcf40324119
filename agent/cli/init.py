# SPDX-License-Identifier: MIT
"""`init`: asks Waldur and this host, and writes a first configuration file. Nothing is written before all is known, and
no file that is there is replaced without being asked for.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import click
from marshmallow import ValidationError

from agent import __version__
from agent.cli.commands.services import TOKEN, TOKEN_VARIABLE, URL_VARIABLE
from agent.cli.options import number, token_in
from agent.cli.output import echo
from agent.config.field_types import api_url
from agent.config.findings import Findings
from agent.config.load import DEFAULT_PLACES
from agent.config.model import Settings, WaldurAccess
from agent.config.secret import Secret
from agent.config.sources import secret_in
from agent.config.unencrypted import leads_away
from agent.core.checks import CheckState
from agent.core.errors import BackendError, SiteAgentError, WaldurError
from agent.core.model import OfferingFacts
from agent.host import files
from agent.run.diagnosis import offering as checks
from agent.run.diagnosis import probes
from agent.run.service import configuration, first_file
from agent.waldur import me, offerings
from agent.waldur.client import WaldurClient
from agent.waldur.offerings import Listed
from backends import registry
from backends.base import FindsClusters, FoundCluster

Choice = TypeVar("Choice")

# Of the offerings that agents serve: `Marketplace.Slurm`.
SERVED_TYPE = "slurm"
NEW_TOKEN = "make a new one in Waldur: profile of the agent's user, Credentials, API token"  # noqa: S105
ADDRESS = "Is this the address of Waldur's API? It is the one of its pages with /api/ at its end"


def command(
    file: Path,
    url: str | None,
    token_file: Path | None,
    wanted: Sequence[str],
    cluster: str | None,
    force: bool,
) -> int:
    is_replaced = _is_replaced(file, force)
    backend, found = _cluster(cluster)
    access = _access(url, token_file)
    client = WaldurClient(
        access, user_agent=f"waldur-site-agent-init/{__version__}", offering_uuid="", attempts=1
    )
    try:
        chosen = _offerings(client, wanted)
    finally:
        client.close()
    with _token_file(file, token_file, access, force) as token_path:
        first = first_file.composed(
            chosen, url=access.url, token_file=str(token_path), backend=backend, cluster=found
        )
        settings = _write(file, first.text, is_new=not is_replaced)
    echo(
        f"written: {file}: {number(len(chosen), 'offering')} on {found.name or 'a cluster'} by {found.program}"
    )
    for note in first.notes:
        echo(f"look at it: {note}", err=True)
    lacking = _lacking(settings)
    echo(*lacking, err=True)
    echo("next:")
    # A file at one of the places where every command looks need not be named.
    option = "" if file.absolute() in DEFAULT_PLACES else f" -c {file}"
    echo(*(f"  waldur-site-cluster {words}{option}" for words in _next(first)))
    return 1 if lacking else 0


def _next(first: first_file.FirstFile) -> list[str]:
    """Return the commands that follow."""
    components = ["load-components"] if first.without_components else []
    return ["config-check", *components, "plan order_process", "plan membership_sync"]


def _is_replaced(file: Path, force: bool) -> bool:
    """Return whether the file is there and is to be replaced. Raises SiteAgentError where it is there and may not."""
    if not os.path.lexists(file):
        return False
    if force or (_has_terminal() and click.confirm(f"{file} is there already. Replace it?", err=True)):
        return True
    raise SiteAgentError(
        f"{file} is there already, and stays as it is: name another file with -c, or replace it with --force"
    )


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _cluster(wanted: str | None) -> tuple[str, FoundCluster]:
    """Return the cluster of this host, with the name of its backend. Raises SiteAgentError."""
    found: list[tuple[str, FoundCluster]] = []
    for name in sorted(registry.installed()):
        plugin = registry.load(name)
        if not isinstance(plugin, FindsClusters):
            continue
        try:
            found += [(name, each) for each in plugin.found_clusters()]
        except BackendError as error:
            raise SiteAgentError(f"the {name} cluster of this host cannot be read: {error}") from error
    if not found:
        raise SiteAgentError(
            "no cluster is found: this host has neither sacctmgr, nor slurmrestd, nor mam-list-accounts on its PATH. "
            "Run `init` on the head node, or put the folder of these programs on PATH"
        )
    names = {each.name: (backend, each) for backend, each in found}
    if wanted is not None:
        if wanted not in names:
            raise SiteAgentError(f"there is no cluster {wanted} here, but {', '.join(names)}")
        return names[wanted]
    return _one_of(
        "cluster",
        "--cluster",
        [(f"{each.name} ({each.program})", (backend, each)) for backend, each in found],
    )


def _one_of(what: str, option: str, choices: Sequence[tuple[str, Choice]]) -> Choice:
    """Return the only choice, or the one that a person names by its number. Raises click's UsageError without a
    terminal.
    """
    (chosen,) = _some_of(what, option, choices, is_one=True)
    return chosen


def _some_of(
    what: str, option: str, choices: Sequence[tuple[str, Choice]], *, is_one: bool = False
) -> list[Choice]:
    if len(choices) == 1:
        return [choices[0][1]]
    echo(f"{what}s:", *(f"  {place}. {text}" for place, (text, _) in enumerate(choices, 1)), err=True)
    if not _has_terminal():
        raise click.UsageError(f"there is more than one {what}: name it with {option}")
    question, answer = (
        (f"Number of the {what}", "one number") if is_one else (f"Numbers of the {what}s", "numbers")
    )
    while True:
        numbers = str(click.prompt(question, err=True)).replace(",", " ").split()
        is_known = all(word.isdecimal() and 1 <= int(word) <= len(choices) for word in numbers)
        if is_known and (len(numbers) == 1 or (numbers and not is_one)):
            return [choices[place - 1][1] for place in sorted(set(map(int, numbers)))]
        echo(f"{answer} from 1 to {len(choices)}, please", err=True)


def _access(url: str | None, token_file: Path | None) -> WaldurAccess:
    """Return the way to Waldur, asked for where it is not given. Raises SiteAgentError, and click's UsageError."""
    text = url or _asked("Address of Waldur", f"--url, or the variable {URL_VARIABLE}", hidden=False)
    text = text if "://" in text else f"https://{text}"
    try:
        if urlsplit(text).path in ("", "/"):
            text = f"{text.rstrip('/')}/api/"
        address = api_url(text)
    except (ValidationError, ValueError) as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--url") from error
    if leads_away(address, "http"):
        echo(f"warning: {address} is without TLS: whoever listens on the network reads the token", err=True)
    if token_file is not None:
        return WaldurAccess(address, token_in(token_file, "--token-file", "token"))
    ways = f"--token-file, or the variable {TOKEN_VARIABLE}"
    token = os.environ.get(TOKEN_VARIABLE, "").strip() or _asked("Token", ways, hidden=True)
    return WaldurAccess(address, Secret(token))


def _asked(what: str, ways: str, *, hidden: bool) -> str:
    """Ask a person at the terminal. Raises click's UsageError where there is none."""
    if not _has_terminal():
        raise click.UsageError(f"{what.lower()} is needed: {ways}")
    return str(click.prompt(what, hide_input=hidden, err=True)).strip()


def _offerings(client: WaldurClient, wanted: Sequence[str]) -> list[OfferingFacts]:
    """Return the offerings to serve. Raises SiteAgentError with what is wrong with address, token or rights."""
    try:
        user = me.account(client)
        listed = offerings.provided(client)
    except WaldurError as error:
        if error.status == 401:
            raise SiteAgentError(f"{error}. Waldur does not take this token: {NEW_TOKEN}") from error
        if error.denied:
            raise
        raise SiteAgentError(f"{error}. Waldur's address is {client.url}: {ADDRESS}") from error
    open_ones = [each for each in listed if each.state != "Archived"]
    served = [each for each in open_ones if SERVED_TYPE in each.type.lower()] or open_ones
    if not served:
        raise SiteAgentError(
            f"Waldur shows {user.username} no offering of which it is a provider: {checks.RIGHTS}; or make the "
            "offering first (docs/getting-started.md)"
        )
    if wanted:
        names = {each.uuid: each for each in listed}
        unknown = [uuid for uuid in wanted if uuid not in names]
        if unknown:
            shown = ", ".join(f"{each.name} {each.uuid}" for each in served)
            raise SiteAgentError(
                f"Waldur shows {user.username} no offering {unknown[0]} of which it is a provider, but {shown}"
            )
        served = [names[uuid] for uuid in dict.fromkeys(wanted)]
    else:
        served = _some_of("offering", "--offering UUID", [(_line(each), each) for each in served])
    return [_facts(client, each) for each in served]


def _line(each: Listed) -> str:
    return f"{each.name}, {each.provider}, {each.state}, {each.uuid}"


def _facts(client: WaldurClient, listed: Listed) -> OfferingFacts:
    """Return the offering with its components. Raises WaldurError."""
    client.offering_uuid = listed.uuid
    return offerings.facts(client)


@contextmanager
def _token_file(file: Path, given: Path | None, access: WaldurAccess, force: bool) -> Iterator[Path]:
    """Yield the path of a file with the token: the one given, or one next to the configuration that is written now, and
    is as before where the body fails. Raises SiteAgentError.
    """
    if given is not None:
        yield given.absolute()
        return
    path = file.absolute().with_name(TOKEN)
    token = access.token.reveal() if access.token else ""
    is_new, there = not os.path.lexists(path), None
    if not is_new:
        there = secret_in(path, str(path), Findings())
        if there == token:
            yield path
            return
        if not force and not (
            _has_terminal() and click.confirm(f"{path} holds another token. Replace it?", err=True)
        ):
            raise SiteAgentError(
                f"{path} holds another token, and stays as it is: name a file with --token-file, or replace it with "
                "--force"
            )
    _place(path, f"{token}\n", is_new=is_new, is_secret=True)
    try:
        yield path
    except BaseException:
        with suppress(OSError, SiteAgentError):
            if is_new:
                path.unlink()
            elif there:
                _place(path, f"{there}\n", is_new=False, is_secret=True)
        raise


def _write(file: Path, text: str, *, is_new: bool) -> Settings:
    """Write the configuration once `config-check` finds nothing wrong with it, and return its settings. Raises
    SiteAgentError.
    """
    folder = file.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, suffix=".yaml") as draft:
            draft.write(text)
            draft.flush()
            checked = configuration.checked(Path(draft.name), os.environ, strict=True)
    except OSError as error:
        raise SiteAgentError(f"cannot write into {folder}: {error.strerror}") from error
    if checked.settings is None:
        problems = "; ".join(map(str, checked.problems)).replace(draft.name, str(file))
        raise SiteAgentError(f"nothing is written, for `config-check` would not take it: {problems}")
    _place(file, text, is_new=is_new)
    return checked.settings


def _place(path: Path, text: str, *, is_new: bool, is_secret: bool = False) -> None:
    """Write a file, whole or not at all: a new one for its owner alone, another one with the owner, group and mode that
    it has, for services read it by these; what is secret is in no case for everybody. Raises SiteAgentError; of a new
    one also where another was there first.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_new:
            files.put(path, text.encode(), is_new=True)
        else:
            there = path.stat()
            mode = stat.S_IMODE(there.st_mode) & ~(stat.S_IRWXO if is_secret else 0)
            files.put(path, text.encode(), mode=mode, owner=files.Owner(there.st_uid, there.st_gid))
    except OSError as error:
        raise SiteAgentError(f"cannot write {path}: {error.strerror}") from error


def _lacking(settings: Settings) -> list[str]:
    """Return what the token lacks of the rights that the agent needs, a sentence each."""
    known: probes.Causes = {}
    looks = checks.probes(settings, settings.offerings, known)
    found = probes.run((each for each in looks if each.name == "Waldur rights"), known)
    return [
        f"{check.about}: {check.found}: {check.remedy}"
        for check in found
        if check.state is CheckState.PROBLEM
    ]
