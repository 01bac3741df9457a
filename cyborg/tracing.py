# SPDX-License-Identifier: Apache-2.0
"""Traces of requests through all services, by osprofiler, if it is installed and [profiler]
enables it.

A trace begins with a request to the API that is signed with one of [profiler] hmac_keys. It goes
with each message to the next service.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from oslo_config import cfg
from oslo_log import log

try:
    from osprofiler import initializer, opts, profiler, web
except ImportError:  # it is the extra "profiler"
    profiler = None  # type: ignore[assignment]

LOG = log.getLogger(__name__)
P = ParamSpec('P')

#: the key of a message's context that has the trace
TRACE = 'trace_info'


def is_installed() -> bool:
    """Returns whether osprofiler is there."""
    return profiler is not None


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of [profiler]; without osprofiler the one that says it is wanted."""
    if is_installed():
        opts.set_defaults(conf)
    else:
        conf.register_opt(cfg.BoolOpt('enabled', default=False), 'profiler')


def is_enabled(conf: cfg.ConfigOpts) -> bool:
    """Returns whether requests are traced."""
    options = getattr(conf, 'profiler', None)
    return is_installed() and options is not None and bool(options.enabled)


def set_up(conf: cfg.ConfigOpts, service: str) -> None:
    """Have this process send its spans to [profiler] connection_string."""
    register(conf)
    if is_enabled(conf):
        initializer.init_from_conf(conf, {}, 'cyborg', service, conf.host)
    elif is_installed():
        web.disable()
    elif conf.profiler.enabled:
        LOG.warning('[profiler] enabled: requests are not traced, since osprofiler is missing.')


@contextlib.contextmanager
def span(kind: str, name: str) -> Iterator[None]:
    """Trace a block, if its thread works for a request that is traced."""
    if profiler is None or profiler.get() is None:
        yield
    else:
        with profiler.Trace(kind, info={'function': {'name': name}}):
            yield


def outgoing() -> dict[str, Any]:
    """Returns what the context of a message must have so that its receiver continues the trace."""
    current = profiler.get() if profiler is not None else None
    if current is None:
        return {}
    return {
        TRACE: {
            'hmac_key': current.hmac_key,
            'base_id': current.get_base_id(),
            'parent_id': current.get_id(),
        }
    }


def incoming(values: dict[str, Any]) -> None:
    """Continue, in this thread, the trace of a message, or none if the message has none."""
    if profiler is None:
        return
    profiler.clean()  # what the last message has left
    if trace := values.get(TRACE):
        profiler.init(**trace)


def carried(function: Callable[P, None]) -> Callable[P, None]:
    """Returns a function that continues the trace of this thread in the thread that calls it."""
    trace = outgoing()
    if not trace:
        return function

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        incoming(trace)
        try:
            function(*args, **kwargs)
        finally:
            incoming({})

    return run
