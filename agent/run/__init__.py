# SPDX-License-Identifier: MIT
"""The use cases, one module per mode: observe, plan, apply policy, apply. Called by tasks and by the CLI."""
