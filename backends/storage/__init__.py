# SPDX-License-Identifier: MIT
"""Home directories and their quotas, on the head node itself."""
