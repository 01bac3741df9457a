# SPDX-License-Identifier: Apache-2.0
"""Placement's own WSGI application on an SQLite file, for the processes of a WSGI server."""

import fcntl
import pathlib
import sys
from wsgiref.types import WSGIApplication

from cyborg.clients import embedded_placement


def make() -> WSGIApplication:
    """Return the application; the first argument of the process is the path of the file."""
    path = pathlib.Path(sys.argv[1])
    with path.with_suffix('.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first process creates the database
        return embedded_placement.load(path)
