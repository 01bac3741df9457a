# SPDX-License-Identifier: Apache-2.0
"""Version 2 of the API: one controller per noun."""
