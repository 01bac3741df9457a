# SPDX-License-Identifier: Apache-2.0
"""SQLAlchemy's tables and the queries by noun; only conductors come here."""
