# SPDX-License-Identifier: MIT
"""`console`: who may log in, what is refused, and a held plan that is approved in a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
import requests

from agent.cli.web import passwords
from agent.cli.web.passwords import PasswordFileUnusable, new_login
from agent.cli.web.roles import Role
from rig.processes import wait_until
from tests.agent.cli.conftest import Command
from tests.agent.cli.usage.browser import Browser
from tests.agent.cli.web.running import PASSWORD, Running, xsrf

RUN = ("run", "order_process", "--once")


def test_what_is_refused(console: Running, command: Command) -> None:
    nobody = requests.Session()
    assert nobody.get(console.url).url == nobody.get(console.plan_url).url == f"{console.url}/login"
    nobody.cookies.set(console.inside.cookie, "2|1:0|10:1795363796|15:console_session|4:YWJj|" + "0" * 64)
    assert nobody.get(console.url).url == f"{console.url}/login", "a forged cookie"
    for name in ("ann", "bob"):
        refused = console.log_in(name, "a wrong password")
        assert refused.get(console.url).url == f"{console.url}/login"
    viewer, operator = console.log_in("vic"), console.log_in("ann")
    page = viewer.get(console.plan_url)
    assert "only an operator approves" in page.text and 'name="shown"' not in page.text
    refusals = {
        "a viewer": console.approve(viewer, shown=" ".join(console.found.plan.marks)),
        "missing XSRF": console.approve(operator, _xsrf=""),
        "another's XSRF": console.approve(operator, _xsrf=xsrf(viewer.get(console.url))),
        "no reason": console.approve(operator, reason=" "),
        "no act": console.approve(operator, act=""),
        "another act": console.approve(operator, act="delete"),
    }
    for what, answer in refusals.items():
        assert answer.status_code in (HTTPStatus.FORBIDDEN, HTTPStatus.BAD_REQUEST), what
    assert "approved by" not in command("approve", "-c", console.config).out
    journal = command("audit", "-c", console.config).out
    assert "left plan" not in journal
    assert journal.count("refused a login to the console from 127.0.0.1") == 2 and "bob" not in journal
    # Who is taken out is out, and so is a cookie after the logout.
    passwords.write(console.passwords, {"ann": passwords.read(console.passwords)["ann"]})
    assert viewer.get(console.url).url == f"{console.url}/login"
    stolen = operator.cookies.get(console.inside.cookie) or ""
    operator.post(f"{console.url}/logout", {"_xsrf": xsrf(operator.get(console.url))})
    operator.cookies.set(console.inside.cookie, stolen)
    assert operator.get(console.url).url == f"{console.url}/login"


def test_a_plan_that_changed_and_one_that_is_approved_are_refused(console: Running) -> None:
    operator, plan = console.log_in("ann"), console.found.plan
    (seen,) = re.findall('name="shown" value="([^"]*)"', operator.get(console.plan_url).text)
    _, *others = plan.lines
    lines = {**{key: plan.lines[key] for key in others}, "new": "remove user <b>zoe</b>"}
    console.found.held.hold(replace(plan, lines=lines))
    changed = console.approve(operator, shown=seen)
    assert changed.status_code == HTTPStatus.CONFLICT
    assert "1 were added (remove user &lt;b&gt;zoe&lt;/b&gt;) and 1 are not planned any more" in changed.text
    (seen,) = re.findall('name="shown" value="([^"]*)"', operator.get(console.plan_url).text)
    assert console.approve(operator, shown=seen).status_code == HTTPStatus.OK
    again = console.approve(operator, shown=seen)
    assert again.status_code == HTTPStatus.CONFLICT
    assert "is approved already, by ann (console) until" in again.text
    console.found.held.drop(plan.id)
    assert console.approve(operator, shown=seen, _xsrf=xsrf(operator.get(console.url))).status_code == 404


@pytest.mark.real_part
def test_a_plan_is_approved_in_a_browser_and_carried_out(
    console_beside_waldur: Running, command: Command, browser: Browser
) -> None:
    console = console_beside_waldur

    def shows(*texts: str) -> None:
        def is_there() -> bool:
            seen = browser.evaluate("document.body ? document.body.innerText : ''")
            return all(text in seen for text in texts)

        wait_until(f"the page says {texts}", is_there)

    def send(selector: str, **values: str) -> None:
        for name, value in values.items():
            browser.evaluate(f"document.querySelector('[name={name}]').value = {value!r}")
        browser.evaluate(f"document.querySelector('{selector}').click()")

    browser.open(console.url, width=375)
    shows("Log in", "Password")
    send("main button", name="ann", password=PASSWORD)
    shows("ann, operator", "2 accounts would be deleted or emptied at once", "start the broker")
    for width in (375, 1200):
        browser.open(console.url, width=width)
        shows("ann, operator")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.complaints == []
    send(".held a")
    shows("delete account a_one", "delete account a_two", "Why it is right")
    send("main button", reason="an old course")
    shows("approved by ann (console)")
    assert command(*RUN, "--json", "-c", console.config).document()["orders"] == {"done": 2}
    browser.open(console.url)
    shows("ann, operator")
    assert "held for" not in browser.evaluate("document.body.innerText")
    journal = command("audit", "-c", console.config).out
    assert "operator ann (console)" in journal and "(an old course)" in journal
    send(".console button")
    shows("Log in")
    browser.open(console.url)
    shows("Log in")
    hosts = {url.split("/")[2] for url in browser.requests if url.startswith("http")}
    assert hosts == {console.url.split("/")[2]}


def test_the_password_file_is_for_its_owner_and_has_no_password(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    assert passwords.read(path) == {}
    passwords.write(path, {"ann": new_login("ann", Role.OPERATOR, PASSWORD)})
    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    login = passwords.read(path)["ann"]
    assert login.role is Role.OPERATOR
    assert login.matches(PASSWORD) and not login.matches(PASSWORD + "x")
    assert not passwords.NO_LOGIN.matches("")
    for name, password in (("a:b", PASSWORD), ("", PASSWORD), ("ann", "short")):
        with pytest.raises(ValueError, match=r"no name|at least"):
            new_login(name, Role.VIEWER, password)
    path.chmod(0o640)
    with pytest.raises(PasswordFileUnusable, match="chmod 600"):
        passwords.read(path)


@pytest.mark.parametrize("listen", ["0.0.0.0:9466", "10.0.0.5", "head1.example.org:9466", "[::]:9466"])
def test_without_tls_or_a_proxy_it_listens_on_loopback_only(
    listen: str, held: tuple[str, str], command: Command
) -> None:
    said = command("console", "--listen", listen, "-c", held[0])
    assert said.code == 2
    assert "is not loopback" in said.err and "console.certificate" in said.err


def test_nobody_can_log_in_before_a_password_is_set(held: tuple[str, str], command: Command) -> None:
    # A slip in its settings is said, too.
    Path(held[0]).write_text(
        f"{Path(held[0]).read_text()}console: {{certificate_key: /etc/waldur/console.key}}\n"
    )
    said = command("console", "-c", held[0])
    sentence = "nobody can log in: `console passwd NAME --role operator` sets a password first"
    slip = "warning: console.certificate: is missing: without it there is no TLS; until then the console is as if"
    assert said.code == 1 and said.err.startswith(slip) and said.err.endswith(f"error: {sentence}\n")
