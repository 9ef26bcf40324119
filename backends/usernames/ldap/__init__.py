# SPDX-License-Identifier: MIT
"""People and groups in an LDAP directory."""
