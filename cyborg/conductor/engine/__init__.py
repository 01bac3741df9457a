# SPDX-License-Identifier: Apache-2.0
"""Where decisions are taken: each function gets a unit of work, and asks the database by it."""
