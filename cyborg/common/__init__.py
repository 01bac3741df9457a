# SPDX-License-Identifier: Apache-2.0
"""Names that the paste files of deployment tools have, and that Cyborg itself does not use."""
