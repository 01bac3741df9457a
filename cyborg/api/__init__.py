# SPDX-License-Identifier: Apache-2.0
"""The REST API."""

import sys

# Pecan imports SQLAlchemy and (by Mako) Pygments where they are installed, which takes 16 MB, to
# show rows and source code. The API shows neither. None makes these imports fail; the names are
# removed again, so that other code can import the libraries.
_UNUSED = [name for name in ('sqlalchemy', 'pygments') if name not in sys.modules]
sys.modules.update(dict.fromkeys(_UNUSED))  # type: ignore[arg-type]
try:
    import pecan  # noqa: F401
finally:
    for _name in _UNUSED:
        del sys.modules[_name]
