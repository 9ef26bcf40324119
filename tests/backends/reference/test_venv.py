# SPDX-License-Identifier: MIT
"""Environments that cannot be used, each with a sentence, before anything of them runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.core.errors import ConfigError
from backends.reference.child import Child
from backends.reference.venv import package_of, python_of
from rig import plugin_venv
from tests.backends.reference.conftest import hosted


def packages(venv: Path) -> Path:
    return next(venv.glob("lib/python3*/site-packages"))


def test_an_environment_has_its_python_and_package(tmp_path: Path) -> None:
    venv = plugin_venv.make(tmp_path)
    assert python_of(venv) == venv / "bin/python"
    assert package_of(venv, plugin_venv.NAME) == "site-tally 1.2"


def moved(venv: Path, to: str) -> None:
    python = venv / "bin/python"
    python.unlink()
    python.symlink_to(to)


def linked(venv: Path, *, folder_mode: int, file_mode: int) -> None:
    """The plugin's module is a link to a link to a file elsewhere."""
    module, folder = packages(venv) / f"{plugin_venv.MODULE}.py", venv.with_name("elsewhere")
    folder.mkdir()
    module.rename(venv.with_name("module.py"))
    (folder / "link.py").symlink_to(venv.with_name("module.py"))
    module.symlink_to(folder / "link.py")
    folder.chmod(folder_mode)
    venv.with_name("module.py").chmod(file_mode)


def package_elsewhere(venv: Path) -> None:
    (venv.with_name("more") / "deep").mkdir(parents=True)
    (venv.with_name("more") / "deep").chmod(0o777)
    (packages(venv) / "more").symlink_to(venv.with_name("more"))


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda venv: venv.rename(venv.with_name("old")), "No such file or directory"),
    "a file": (lambda venv: (venv.rename(venv.with_name("old")), venv.touch()), "is no folder"),
    "its Python is gone": (lambda venv: moved(venv, "/opt/python3.9/bin/python3.9"), "No such file or directory"),
    "its Python runs nothing": (lambda venv: moved(venv, str(venv / "pyvenv.cfg")), "is no program"),
    "no Python": (lambda venv: (venv / "bin/python").unlink(), "No such file or directory"),
    "writable by all": (lambda venv: venv.chmod(0o777), "can be changed by others"),
    "packages writable by all": (lambda venv: packages(venv).chmod(0o777), "can be changed by others"),
    "a module writable by its group": (
        lambda venv: (packages(venv) / f"{plugin_venv.MODULE}.py").chmod(0o664),
        "can be changed by others",
    ),
    "a link to a module writable by all": (
        lambda venv: linked(venv, folder_mode=0o755, file_mode=0o666), "module.py can be changed by others",
    ),
    "a link through a folder writable by all": (
        lambda venv: linked(venv, folder_mode=0o777, file_mode=0o644), "elsewhere can be changed by others",
    ),
    "a link to a package with a folder writable by all": (package_elsewhere, "deep can be changed by others"),
    "below a folder writable by all": (lambda venv: venv.parent.chmod(0o777), "can be changed by others"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_an_environment_that_cannot_be_trusted_is_not_used(tmp_path: Path, how: str) -> None:
    spoil, reason = SPOILT[how]
    venv = plugin_venv.make(tmp_path)
    spoil(venv)
    with pytest.raises(ConfigError, match=reason):
        python_of(venv)
    child = Child(hosted(venv), "UTC")
    with pytest.raises(ConfigError, match=rf"plugin_venv: .*{reason}"):
        child.ask("check")
    assert not child.executed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_runs_nothing_of_another_user(tmp_path: Path) -> None:
    venv = plugin_venv.make(tmp_path)
    os.chown(packages(venv) / f"{plugin_venv.MODULE}.py", 65534, 65534)
    with pytest.raises(
        ConfigError, match=rf"{plugin_venv.MODULE}.py can be changed by others .*chown -R root"
    ):
        python_of(venv)


def test_a_folder_where_everybody_changes_only_his_own_may_lead_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    python_of(plugin_venv.make(tmp_path))


def test_links_that_others_cannot_change_may_be_there(tmp_path: Path) -> None:
    venv = plugin_venv.make(tmp_path)
    linked(venv, folder_mode=0o755, file_mode=0o644)
    (packages(venv) / "gone").symlink_to("/nowhere")
    (packages(venv) / "round").symlink_to("..")
    python_of(venv)


def test_an_environment_without_the_package_says_what_it_has(tmp_path: Path) -> None:
    venv = plugin_venv.make(tmp_path)
    with pytest.raises(
        ConfigError, match=r"no package in .* has a backend 'harbor' .*; it has: tally. Install it"
    ):
        package_of(venv, "harbor")


def test_packages_of_another_python_are_not_found_by_its_own(tmp_path: Path) -> None:
    """An environment whose Python was replaced by one of another version."""
    venv = plugin_venv.make(tmp_path)
    packages(venv).parent.rename(venv / "lib/python3.9")
    assert package_of(venv, plugin_venv.NAME)
    with pytest.raises(Exception, match="failed at open: LookupError: no package here has a backend 'tally'"):
        Child(hosted(venv), "UTC").ask("check")
