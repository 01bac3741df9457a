# SPDX-License-Identifier: Apache-2.0
"""How fast Cyborg is, beside what the parts it is built on allow: ``python -m tools.bench``.

Absolute times do not carry from machine to machine, so each run measures a floor in the same
minutes: a bare Pecan application under the same server, a bare RPC echo over the same broker, the
bare SQL of the same statements on the same database. Ratios to it do carry.
"""
