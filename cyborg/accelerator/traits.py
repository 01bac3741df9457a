# SPDX-License-Identifier: Apache-2.0
"""The one place where a name becomes a trait or a resource class."""

import hashlib
import re

LONGEST = 255


def custom(*parts: str) -> str:
    """CUSTOM_ and the parts, in the characters Placement allows, never longer than it takes."""
    words = (re.sub('[^A-Z0-9]+', '_', part.upper()).strip('_') for part in parts)
    name = '_'.join(('CUSTOM', *filter(None, words)))
    if len(name) <= LONGEST:
        return name
    # two long names that differ at their end must stay different
    mark = hashlib.sha256(name.encode()).hexdigest()[:16].upper()
    return f'{name[:LONGEST - 17]}_{mark}'
