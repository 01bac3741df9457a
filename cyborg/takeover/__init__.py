# SPDX-License-Identifier: Apache-2.0
"""Takes over what another Cyborg service manages: reads its database, and imports the rows."""
