# SPDX-License-Identifier: Apache-2.0
"""The API for WSGI servers: ``cyborg.wsgi.api:application``.

Arguments are ours, as of any Cyborg command: with uWSGI, ``pyargv = --config-file ...``.
"""

from cyborg.api import app
from cyborg.cmd import startup

_conf = startup.configure()
app.refuse_open_door(_conf, None)
application = app.load_app(_conf)
startup.settle()
