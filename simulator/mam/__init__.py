# SPDX-License-Identifier: MIT
"""Stand-ins for the commands of MOAB Accounting Manager 9.1: `mam-*` programs with a state file of their own.

MAM is proprietary. These answer as docs/moab.md says that it does, are strict about options, and fail on
request. For the tests and the demo; nothing of them runs at a site.
"""
