# SPDX-License-Identifier: Apache-2.0
"""What developers of Cyborg use and a deployment never sees."""
