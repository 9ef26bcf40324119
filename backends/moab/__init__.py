# SPDX-License-Identifier: MIT
"""MOAB Accounting Manager 9.1 through its `mam-*` commands: accounts, members, and deposits into funds."""
