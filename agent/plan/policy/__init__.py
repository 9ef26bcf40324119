# SPDX-License-Identifier: MIT
"""What stands between plan and apply: rules, dependencies, budgets, decision."""
