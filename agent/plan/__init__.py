# SPDX-License-Identifier: MIT
"""Pure planners: values in, actions out. No clock, no logger, no I/O; what is unknown removes nothing."""
