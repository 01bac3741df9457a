# SPDX-License-Identifier: Apache-2.0
"""Placement's own WSGI application on an SQLite file, for the processes of a WSGI server."""

import fcntl
import pathlib
import sys

from cyborg.clients import embedded_placement

_path = pathlib.Path(sys.argv[1])
with _path.with_suffix('.lock').open('w') as _lock:
    fcntl.flock(_lock, fcntl.LOCK_EX)  # the first process creates the database
    application = embedded_placement.load(_path)
