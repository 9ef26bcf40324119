# SPDX-License-Identifier: MIT
"""How each command is called: arguments, options and help. What carries it out is imported when it is called."""
