# SPDX-License-Identifier: MIT
"""Read the sources of values: YAML files, files with one secret in them, and the environment's variables.

Reads only. What cannot be read becomes a problem; its sentence shows neither secrets nor lines of files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from agent.config.findings import Findings, key_path
from agent.config.secret import secret_values

try:
    from yaml import CSafeLoader
except ImportError:  # a PyYAML without libyaml
    from yaml import SafeLoader as CSafeLoader  # type: ignore[assignment]

# What PyYAML's constructors raise, besides YAMLError, for scalars like `!!int x` or the date 2024-13-45.
_BAD_SCALAR = (ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError)
# systemd's LoadCredential puts files there that root read for a service of another user.
CREDENTIALS = "CREDENTIALS_DIRECTORY"
NOT_READ = "not read by this process"
_MERGE_TAG = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Sources:
    """What readers may look at, and where they write what is wrong."""

    environ: Mapping[str, str]
    # Relative file names start here.
    folder: Path
    findings: Findings
    # False: the secrets of offerings are left where they are, for beat and Flower need none. Those of
    # `backend_settings` are there until its backends have judged them (`agent.run.service.configuration`).
    with_logins: bool = True

    def located(self, name: str) -> Path:
        """Return the file of that name; systemd's credential of the same name where only that can be read."""
        file = self.folder / os.path.expanduser(name)
        granted = self.environ.get(CREDENTIALS, "")
        if not granted or os.access(file, os.R_OK):
            return file
        credential = Path(granted) / file.name
        return credential if credential.is_file() else file


def read_yaml(file: Path, findings: Findings) -> Mapping[Any, Any] | None:
    """Return the map in a YAML file, or None with a problem. Warns when everybody may read a secret in it."""
    place = str(file)
    content = _text_of(file, place, findings)
    if content is None:
        return None
    tree = _parsed(content, place, findings)
    if tree is None:
        return None
    if not isinstance(tree, Mapping):
        findings.error(place, "a map of keys is needed at the top of the file")
        return None
    if any(secret_values(tree)):
        warn_if_open(file, findings)
    return tree


def warn_if_open(file: Path, findings: Findings) -> None:
    """Warn of a file with a secret that everybody may read."""
    if is_open_to_all(file):
        findings.warn(str(file), f"it holds a secret, and everybody here may read it: chmod 600 {file}")


def secret_of(values: object, key: str, path: str, *, sources: Sources) -> str | None:
    """Return the secret from `key`, the file in `key_file` or the variable in `key_env`; empty when none is given,
    and a placeholder for one of an offering (its `path` is not empty) where logins are not wanted.

    None when the way that is given does not lead to a secret; the problem is then noted.
    """
    written = {name: str(getattr(values, name)) for name in (key, f"{key}_file", f"{key}_env")}
    given = [name for name, value in written.items() if value]
    if len(given) > 1:
        names = ", ".join(f"`{name}`" for name in given)
        sources.findings.error(key_path(path, key), f"give only one of {names}")
        return None
    if given and path and not sources.with_logins:
        return NOT_READ
    if not given or given[0] == key:
        return written[key]
    place = key_path(path, given[0])
    if given[0].endswith("_env"):
        variable = written[given[0]]
        value = sources.environ.get(variable, "").strip()
        if not value:
            sources.findings.error(place, f"the environment variable {variable} is not set")
        return value or None
    return secret_in(sources.located(written[given[0]]), place, sources.findings)


def secret_in(file: Path, place: str, findings: Findings) -> str | None:
    """Return the one line of a file that holds a secret; None, noted at `place`, where it has none."""
    content = _text_of(file, place, findings)
    if content is None:
        return None
    secret = content.strip()
    if not secret or "\n" in secret:
        findings.error(place, f"{file} {'has more than one line' if secret else 'is empty'}")
        return None
    if is_open_to_all(file):
        findings.warn(place, f"everybody here may read {file}: chmod 600 {file}")
    return secret


def is_open_to_all(file: Path) -> bool:
    """Return whether every user of this machine may read the file."""
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _text_of(file: Path, place: str, findings: Findings) -> str | None:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        findings.error(place, f"{file} is not UTF-8 text")
    except OSError as error:
        findings.error(place, f"cannot read {file}: {error.strerror or error}")
    return None


def _parsed(content: str, place: str, findings: Findings) -> Any:
    """Return the tree of a YAML text; None, noted, when it is empty or broken."""
    try:
        loader, node = _composed(content)
        if node is not None:
            _note_doubles(node, findings)
        tree = loader.construct_document(node) if node else None
        if tree is None:
            findings.error(place, "the file is empty")
        return tree
    except yaml.YAMLError as error:
        findings.error(place, f"this is not YAML: {_describe(error)}")
    except _BAD_SCALAR:
        findings.error(place, "this is not YAML: a number, date or tag in it cannot be read")
    except RecursionError:
        findings.error(place, "this is not YAML for a configuration: it is nested too deeply")
    return None


class _QuickLoader(CSafeLoader, Composer):
    """Reads a text by C, which is six times as fast, and makes its nodes by Python: C ends the process where nodes are
    nested too deeply.
    """

    def __init__(self, content: str) -> None:
        super().__init__(content)
        Composer.__init__(self)

    get_single_node = Composer.get_single_node


def _composed(content: str) -> tuple[yaml.SafeLoader | _QuickLoader, yaml.Node | None]:
    """Return a loader, and the root of the text. A text that C refuses is read again by Python, whose errors say more.
    C takes some that Python refuses: a tab between two words, a comment right behind `|`.
    """
    with suppress(yaml.YAMLError):
        quick = _QuickLoader(content)
        return quick, quick.get_single_node()
    loader = yaml.SafeLoader(content)
    return loader, loader.get_single_node()


def _note_doubles(root: yaml.Node, findings: Findings) -> None:
    """Warn of keys given twice in one map; YAML, and so the reference, takes the last one."""
    waiting: list[tuple[yaml.Node, str]] = [(root, "")]
    seen: set[int] = set()
    while waiting:
        node, path = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_TAG:
                    continue
                if key.value in names:
                    line = key.start_mark.line + 1
                    findings.warn(
                        key_path(path, key.value), f"given again in line {line}; the last one counts"
                    )
                names.add(key.value)
                waiting.append((value, key_path(path, key.value)))


def _describe(error: yaml.YAMLError) -> str:
    """Return what is wrong and where, without the line itself: a token could stand in it."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem is None:
        return "it has a character that YAML does not allow"
    problem = error.problem
    if re.search("alias|tag|anchor", problem):  # "found undefined alias 'x'" and the like quote the value
        problem = re.sub(r"'[^']*'", "'...'", problem)
    mark = error.problem_mark or error.context_mark
    return f"{problem}, line {mark.line + 1}, column {mark.column + 1}" if mark else problem
