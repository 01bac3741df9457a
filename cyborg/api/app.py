# SPDX-License-Identifier: Apache-2.0
"""The WSGI application, alone or in the pipeline that a paste file describes."""

import ipaddress
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import oslo_middleware
import pecan.core
from oslo_config import cfg
from paste.deploy import loadwsgi

from cyborg import errors, policy, rpc, tracing
from cyborg.api import health, hooks, request, waiting
from cyborg.api.controllers import root
from cyborg.api.middleware import access_log, auth_token, faults, healthcheck, request_metrics
from cyborg.common import profiler
from cyborg.conductor import rpcapi

#: [api] auth_strategy: name of the pipeline. Older paste files have ``main``.
PIPELINES = {'keystone': 'main', 'noauth2': 'noauth2'}

#: The functions that every pipeline needs, from the inside to the outside: filters that have the
#: function, and the one that is added if a paste file has none of them. Deployment tools have
#: their own paste files.
NEEDED_FILTERS: tuple[tuple[tuple[type, ...], Callable[..., Any]], ...] = (
    (
        (oslo_middleware.RequestBodySizeLimiter,),
        oslo_middleware.RequestBodySizeLimiter.factory,
    ),
    ((faults.FaultsMiddleware,), faults.FaultsMiddleware.factory),
    (
        (healthcheck.HealthcheckMiddleware, oslo_middleware.Healthcheck),
        healthcheck.HealthcheckMiddleware.factory,
    ),
)

#: where paste files are installed, used if the configuration directories have none
INSTALLED = (
    pathlib.Path(sys.prefix, 'etc/cyborg'),
    pathlib.Path(__file__).parents[2] / 'etc/cyborg',
)


class Application(pecan.core.ExplicitPecan):
    """Pecan that passes request and response as arguments: its thread-locals are shared by all
    applications of a process, and tests run several.

    Pecan inspects the signatures of ``_route`` and of the controller at each request, which takes
    as long as the rest of a request; the methods here call them at once.
    """

    def route(self, req: Any, node: Any, path: str) -> Any:
        """Returns the controller for a request, and what follows it in the path."""
        return node.route(req.segments, req)

    def invoke_controller(self, controller: Any, args: Any, kwargs: Any, state: Any) -> None:
        """Call the controller and take the response that it returns."""
        state.response = controller(*args)


def make_app(conf: cfg.ConfigOpts, conductor: Any) -> Any:
    """Returns the application without filters; it trusts the headers that identify the caller."""
    auth_token.register_opts(conf)
    enforcer = policy.get_enforcer(conf)
    waiter = waiting.Waiter(conductor, conf.api.bind_wait, conf.api.max_waiting_binds)
    return Application(
        root.Root(conf, conductor, waiter),
        hooks=[
            hooks.FaultHook(),
            hooks.ContextHook(conf, enforcer),
            hooks.VersionHook(),
            hooks.PolicyHook(enforcer),
            hooks.ValidationHook(),
        ],
        request_cls=request.Request,
        guess_content_type_from_ext=False,
    )


def app_factory(
    global_conf: dict[str, str],
    conf: cfg.ConfigOpts = cfg.CONF,
    conductor: Any = None,
    **local_conf: str,
) -> Any:
    """Returns the application; paste calls this. ``load_app`` adds the objects that a paste file
    cannot name."""
    return make_app(
        conf, conductor or rpcapi.ConductorAPI(rpc.transport(conf), rpc.Limits.of_api(conf))
    )


def load_app(conf: cfg.ConfigOpts, conductor: Any = None) -> Any:
    """Returns the pipeline of [api] auth_strategy, with the filters that it needs and lacks."""
    context = loadwsgi.loadcontext(
        loadwsgi.APP, f'config:{_paste_file(conf)}', name=PIPELINES[conf.api.auth_strategy]
    )
    if conductor is None:
        conductor = rpcapi.ConductorAPI(rpc.transport(conf), rpc.Limits.of_api(conf))
    # the end of a pipeline, or an application without one
    last = getattr(context, 'app_context', context)
    last.local_conf.update(conf=conf, conductor=conductor)
    ours: dict[str, Any] = {health.CONDUCTOR: conductor}
    filters = getattr(context, 'filter_contexts', ())
    for each in filters:
        if _is_factory_of(each.object, (healthcheck.HealthcheckMiddleware,)):
            each.local_conf.update(ours)
    application = context.create()
    for present, factory in NEEDED_FILTERS:
        if not any(_is_factory_of(each.object, present) for each in filters):
            is_check = healthcheck.HealthcheckMiddleware in present
            application = factory({}, **ours if is_check else {})(application)
    if tracing.is_enabled(conf) and not any(
        _is_factory_of(each.object, (profiler.WsgiMiddleware,)) for each in filters
    ):
        application = profiler.WsgiMiddleware.factory({})(application)
    if conf.api.access_log:
        application = access_log.AccessLog(application)
    collections = frozenset(each.path for each in root.COLLECTIONS)
    return request_metrics.RequestMetrics(application, collections)


def _is_factory_of(factory: Any, classes: tuple[type, ...]) -> bool:
    cls = getattr(factory, '__self__', None)
    return isinstance(cls, type) and issubclass(cls, classes)


def require_local_noauth(conf: cfg.ConfigOpts, host: str | None) -> None:
    """Raises ConfigError if other machines can call an API without authentication, which treats
    every caller as an administrator.

    ``host`` is the address on which the API listens; None if only the WSGI server knows it.
    """
    if (
        conf.api.auth_strategy != 'noauth2'
        or conf.api.allow_remote_noauth
        or host is not None
        and _is_loopback(host)
    ):
        return
    raise errors.ConfigError(
        why=f'[api] auth_strategy = noauth2 would let anybody who reaches '
        f'{host or "this WSGI server"} do anything: let cyborg-api listen on 127.0.0.1, or '
        f'set allow_remote_noauth to allow this.'
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name; only localhost is known to be a loopback address
        return host == 'localhost'


def _paste_file(conf: cfg.ConfigOpts) -> str:
    name = conf.api.api_paste_config
    candidates = (conf.find_file(name), *(directory / name for directory in INSTALLED))
    for candidate in candidates:
        if candidate and pathlib.Path(candidate).is_file():
            return str(pathlib.Path(candidate).absolute())
    raise errors.ConfigError(why=f'There is no {name}; set [api] api_paste_config to its path.')
