# SPDX-License-Identifier: Apache-2.0
"""The API for WSGI servers: ``cyborg.wsgi.api:application``, or this file as a WSGI script.

In uWSGI it reads command-line arguments like every Cyborg command: ``pyargv = --config-file ...``.
Without any, and in other servers, it reads the files in the default places.
"""

import sys

from cyborg import library_internals, metrics
from cyborg.api import app, waiting
from cyborg.api.middleware import request_metrics
from cyborg.cmd import startup


def _arguments() -> list[str]:
    """Return the command-line arguments of the application.

    Only uWSGI has some for it. In a process of another server they are those of the server.
    """
    try:
        import uwsgi  # noqa: F401
    except ImportError:
        return []
    return sys.argv[1:]


def _count_threads() -> int | None:
    """Return how many requests this process can serve at a time, or None if that is unknown."""
    try:
        import uwsgi  # a module inside of uWSGI

        return int(uwsgi.opt.get('threads', 1))
    except ImportError:
        pass
    try:
        import mod_wsgi  # a module inside of Apache

        return int(mod_wsgi.threads_per_process)
    except ImportError:
        return None


def _open_early(listener: metrics.Listener) -> None:
    """Serve metrics as soon as this process serves requests, if the server says when that is.

    A server may load the application and fork its processes afterwards, and no thread survives a
    fork. Other servers open the port with their first request.
    """
    try:
        import uwsgi
    except ImportError:
        try:
            import mod_wsgi  # noqa: F401
        except ImportError:
            return
        listener.start()  # Apache loads the application in the process that serves it
        return
    if uwsgi.worker_id():  # lazy-apps
        listener.start()
        return
    others = getattr(uwsgi, 'post_fork_hook', None)

    def after_fork() -> None:
        if others is not None:
            others()
        listener.start()

    uwsgi.post_fork_hook = after_fork


# The queue manager of oslo.messaging has a file and a queue for each name of a process. By default
# that is the name of the WSGI server, which other services on this host may have, too.
library_internals.set_rabbit_defaults(processname='cyborg-api')
_conf = startup.configure(_arguments())
app.require_local_noauth(_conf, None)
_threads = _count_threads()
if _threads is not None:
    waiting.leave_a_thread(_conf, _threads, 'Give the WSGI server more threads')
_listener = metrics.Listener(_conf.api.metrics_host, _conf.api.metrics_port)
application = request_metrics.ServedFromFirstRequest(app.load_app(_conf), _listener)
startup.settle_memory()
_open_early(_listener)
