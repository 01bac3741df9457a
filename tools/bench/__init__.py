# SPDX-License-Identifier: Apache-2.0
"""Measures the speed of Cyborg and of the components that it uses: ``python -m tools.bench``.

Absolute times cannot be compared between machines. Each run therefore also measures a floor: a
bare Pecan application under the same server, a bare RPC echo over the same broker, and the same
SQL statements on the same database. Ratios to the floor can be compared.
"""
