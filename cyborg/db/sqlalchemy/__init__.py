# SPDX-License-Identifier: Apache-2.0
"""The tables, and the queries by noun. Only conductors and commands of operators use them."""
