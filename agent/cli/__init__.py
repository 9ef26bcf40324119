# SPDX-License-Identifier: MIT
"""The operator's commands, one module each. Exit codes: 0 done, 1 something failed, 2 usage or configuration."""
