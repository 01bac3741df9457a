# SPDX-License-Identifier: Apache-2.0
"""How a name becomes a trait or a resource class. Nothing else does this."""

import hashlib
import re

import os_resource_classes

LONGEST = 255
PREFIX = 'CUSTOM_'
CUSTOM = re.compile(f'{PREFIX}_*[A-Z0-9][A-Z0-9_]*')
#: Only Placement knows which of these exist.
STANDARD = re.compile('(COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]+')


class NotAName(ValueError):
    """A name has none of the characters that Placement allows."""


def custom(*parts: str) -> str:
    """Returns CUSTOM_ and the parts, in characters and of a length that Placement allows."""
    words = (re.sub('[^A-Za-z0-9]+', '_', part).strip('_').upper() for part in parts)
    name = '_'.join(filter(None, words))
    if not name:
        raise NotAName(
            f'{" ".join(parts)!r} does not name a trait or resource class: it has '
            'neither a letter from A to Z nor a digit.'
        )
    return _short(PREFIX + name)


def trait(name: str) -> str:
    """Returns the trait of a name that a driver or an option gives. A standard name stays as it
    is."""
    plain = name.strip()
    return plain if STANDARD.fullmatch(plain) and len(plain) <= LONGEST else _custom(plain)


def resource_class(name: str) -> str:
    """Returns the resource class of a name that a driver or an option gives."""
    plain = name.strip()
    return plain if plain in os_resource_classes.STANDARDS else _custom(plain)


def _custom(name: str) -> str:
    if CUSTOM.fullmatch(name):
        return _short(name)
    return custom(name[len(PREFIX) :] if name.upper().startswith(PREFIX) else name)


def _short(name: str) -> str:
    if len(name) <= LONGEST:
        return name
    # two long names that differ at their end must stay different
    mark = hashlib.sha256(name.encode()).hexdigest()[:16].upper()
    return f'{name[: LONGEST - 17]}_{mark}'
