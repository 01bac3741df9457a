# SPDX-License-Identifier: Apache-2.0
"""The access log: one line per request, whatever the paste file has."""

import json
import time
import urllib.parse
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from oslo_log import log

from cyborg import context
from cyborg.api import faults, hooks, microversions

LOG = log.getLogger('cyborg.access')

#: paths that load balancers and probes request all the time
PROBED = frozenset({'', '/', '/healthcheck', '/metrics'})
#: set in the environment of requests that somebody repeats all the time: they are for DEBUG, too
REPEATED = 'cyborg.repeated'
#: characters of a path and a query that are written as they are
PLAIN = "/?:@!$&'()*+,;=-._~%"
#: the longest path and query that are written whole
LONGEST = 1024


class AccessLog:
    """Logs the caller, the request, the status and the duration; never a token."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = _asked(environ)  # before filters shift parts of the path
        is_usual = environ.get('PATH_INFO', '') in PROBED or REPEATED in environ
        level = log.DEBUG if is_usual else log.INFO
        answer: dict[str, Any] = {'status': '500', 'headers': ()}

        def note(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            answer.update(status=status.partition(' ')[0], headers=headers)
            return start_response(status, headers, *rest)

        began = time.perf_counter()
        try:
            return self._application(environ, note)
        finally:
            if LOG.isEnabledFor(level):
                self._write(level, environ, asked, answer, time.perf_counter() - began)

    @staticmethod
    def _write(
        level: int, environ: WSGIEnvironment, asked: str, answer: dict[str, Any], seconds: float
    ) -> None:
        told = {name.lower(): value for name, value in answer['headers']}
        # the context of the thread may be that of an earlier request if this one was refused
        whose = environ.get(hooks.CONTEXT) or _nobody(environ)
        fault = environ.get(faults.FAULT)
        version = told.get(microversions.HEADER.lower(), '-').rpartition(' ')[2]
        LOG.log(
            level,
            '%s "%s" status: %s len: %s microversion: %s time: %.6f project: %s request_id: %s%s',
            environ.get('REMOTE_ADDR') or '-',
            asked,
            answer['status'],
            told.get('content-length', '-'),
            version,
            seconds,
            _word(whose.project_id),
            _word(whose.request_id),
            f' fault: {json.dumps(fault)}' if fault else '',
            context=whose,
        )


def _asked(environ: WSGIEnvironment) -> str:
    path = urllib.parse.quote(
        environ.get('SCRIPT_NAME', '') + environ.get('PATH_INFO', ''), PLAIN, 'latin-1', 'replace'
    )
    query = urllib.parse.quote(environ.get('QUERY_STRING', ''), PLAIN, 'latin-1', 'replace')
    target = f'{path}?{query}' if query else path
    if len(target) > LONGEST:
        target = f'{target[:LONGEST]}...'
    return f'{_word(environ.get("REQUEST_METHOD"))} {target}'


def _word(value: str | None) -> str:
    """Returns a value as one word, so that it cannot forge another part of the line."""
    return urllib.parse.quote(value, PLAIN, 'latin-1', 'replace') if value else '-'


def _nobody(environ: WSGIEnvironment) -> context.RequestContext:
    return context.RequestContext(overwrite=False, request_id=environ.get('openstack.request_id'))
