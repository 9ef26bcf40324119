# SPDX-License-Identifier: MIT
"""State of the stand-in MAM, and what each of its commands does to it. Amounts are hundredths of the currency.

Where MAM's behaviour is not known to us it does what is most dangerous: an account goes with its members, its fund
stays behind.
Only what a start of 20 ms can afford is imported here.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ADMINISTRATOR = "mam"
FIRST_FUND = 17
STATE_FILE = "mam.json"

Row = dict[str, str]


class Refused(Exception):
    """MAM refuses; the text is its sentence."""


class Books:
    """The state of one MAM."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.accounts: dict[str, dict[str, Any]] = state.get("accounts", {})
        self.funds: dict[str, dict[str, Any]] = state.get("funds", {})
        self.users: dict[str, str] = state.get("users", {ADMINISTRATOR: ""})
        self.next_fund: int = state.get("next_fund", FIRST_FUND)
        self.options: dict[str, bool] = {
            # Makes a fund with every account.
            "fund_with_account": False,
            # False refuses users that it does not know.
            "makes_users": True,
            # Gives who has no default account the first one.
            "first_account_default": True,
            **state.get("options", {}),
        }

    # Accounts -------------------------------------------------------------------------------------

    def create_account(self, name: str, description: str = "", organization: str = "") -> str:
        if name in self.accounts:
            raise Refused(f"Account {name} already exists")
        self.accounts[name] = {
            "description": description,
            "organization": organization,
            "active": True,
            "users": {},
        }
        if self.options["fund_with_account"]:
            self.create_fund(name)
        return f"Successfully created 1 account: {name}"

    def delete_account(self, name: str) -> str:
        self._account(name)
        del self.accounts[name]
        return f"Successfully deleted 1 account: {name}"

    def activate(self, name: str, *, active: bool) -> str:
        self._account(name)["active"] = active
        return f"Successfully modified 1 account: {name}"

    def add_user(self, name: str, word: str) -> str:
        """`word` is the user's name, with `+` or `-` before it for an active or inactive member."""
        account = self._account(name)
        user = word.lstrip("+-")
        if user not in self.users:
            if not self.options["makes_users"]:
                raise Refused(f"User {user} does not exist")
            self.users[user] = ""
        if user in account["users"]:
            raise Refused(f"User {user} is already a member of account {name}")
        account["users"][user] = not word.startswith("-")
        if self.options["first_account_default"] and not self.users[user]:
            self.users[user] = name
        return f"Successfully added user {user} to account {name}"

    def delete_user(self, name: str, user: str) -> str:
        account = self._account(name)
        if user not in account["users"]:
            raise Refused(f"User {user} is not a member of account {name}")
        del account["users"][user]
        return f"Successfully deleted user {user} from account {name}"

    def set_default(self, user: str, name: str) -> str:
        if user not in self.users:
            raise Refused(f"User {user} does not exist")
        self._account(name)
        self.users[user] = name
        return f"Successfully modified 1 user: {user}"

    # Funds ----------------------------------------------------------------------------------------

    def create_fund(self, account: str = "", **constraints: str) -> str:
        """Create a fund; without an account everybody may use it."""
        if account:
            self._account(account)
            constraints = {"Account": account, **constraints}
        number = str(self.next_fund)
        self.next_fund += 1
        self.funds[number] = {"constraints": constraints, "allocated": 0, "balance": 0}
        return f"Successfully created fund {number}"

    def delete_fund(self, number: str) -> str:
        self._fund(number)
        del self.funds[number]
        return f"Successfully deleted fund {number}"

    def deposit(self, number: str, amount: int) -> str:
        fund = self._fund(number)
        if amount <= 0:
            raise Refused("The amount of a deposit must be above zero")
        fund["allocated"] += amount
        fund["balance"] += amount
        return f"Successfully deposited {money(amount)} credits into fund {number}"

    def withdraw(self, number: str, amount: int) -> str:
        fund = self._fund(number)
        if amount <= 0:
            raise Refused("The amount of a withdrawal must be above zero")
        if amount > fund["balance"]:
            raise Refused(f"Insufficient funds: fund {number} holds {money(fund['balance'])}")
        fund["allocated"] -= amount
        fund["balance"] -= amount
        return f"Successfully withdrew {money(amount)} credits from fund {number}"

    def charge(self, account: str, amount: int) -> None:
        """Charge a job to the first fund that the account may use, below zero if need be."""
        for fund in self.funds.values():
            if fund["constraints"].get("Account", account) == account:
                fund["balance"] -= amount
                return

    # Lists ----------------------------------------------------------------------------------------

    def list_accounts(self, account: str = "") -> list[Row]:
        return [
            {
                "Name": name,
                "Active": str(found["active"]),
                "Users": ",".join(
                    user if active else f"-{user}" for user, active in sorted(found["users"].items())
                ),
                "Organization": found["organization"],
                "Description": found["description"],
            }
            for name, found in sorted(self.accounts.items())
            if account in ("", name)
        ]

    def list_funds(self, account: str = "", user: str = "") -> list[Row]:
        """Return funds; with an account or a user those that they can use, also those without constraints."""
        return [
            {
                "Id": number,
                "Allocated": money(fund["allocated"]),
                "Balance": money(fund["balance"]),
                "Constraints": ",".join(f"{name}={value}" for name, value in fund["constraints"].items()),
            }
            for number, fund in sorted(self.funds.items(), key=lambda item: int(item[0]))
            if self._is_open(fund["constraints"], account, user)
        ]

    def list_users(self, account: str = "") -> list[Row]:
        members = self._account(account)["users"] if account else self.users
        return [{"Name": user, "DefaultAccount": self.users[user]} for user in sorted(members)]

    def _is_open(self, constraints: dict[str, str], account: str, user: str) -> bool:
        of_fund = constraints.get("Account", "")
        if account and of_fund not in ("", account):
            return False
        if not user:
            return True
        members = self.accounts.get(of_fund, {}).get("users", {})
        return constraints.get("User", user) == user and (not of_fund or user in members)

    def _account(self, name: str) -> dict[str, Any]:
        if name not in self.accounts:
            raise Refused(f"Account {name} does not exist")
        return self.accounts[name]

    def _fund(self, number: str) -> dict[str, Any]:
        if number not in self.funds:
            raise Refused(f"Fund {number} does not exist")
        return self.funds[number]


def load_books(folder: str) -> Books:
    path = f"{folder}/{STATE_FILE}"
    if not os.path.exists(path):
        return Books({})
    with open(path, encoding="utf-8") as stream:
        return Books(json.load(stream))


def save_books(books: Books, folder: str) -> None:
    """Replace the state file in one step: a process killed here leaves the old state."""
    names = ("accounts", "funds", "users", "next_fund", "options")
    draft = f"{folder}/{STATE_FILE}.new"
    with open(draft, "w", encoding="utf-8") as stream:
        json.dump({name: getattr(books, name) for name in names}, stream, ensure_ascii=False)
    os.replace(draft, f"{folder}/{STATE_FILE}")


def money(hundredths: int) -> str:
    sign = "-" if hundredths < 0 else ""
    return f"{sign}{abs(hundredths) // 100}.{abs(hundredths) % 100:02}"


def hundredths(text: str) -> int:
    """Raises Refused for what is no amount with two decimals at most."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and (fraction + "0").isdecimal() and len(fraction) <= 2 and text.isascii()):
        raise Refused(f"{text!r} is no amount")
    return int(whole) * 100 + int(f"{fraction}00"[:2])
