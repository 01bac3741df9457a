# SPDX-License-Identifier: Apache-2.0
"""The WSGI application, alone or in the pipeline that a paste file describes."""

import ipaddress
import pathlib
import sys
from typing import Any

import pecan.core
from oslo_config import cfg
from paste.deploy import loadwsgi

from cyborg import errors, policy, rpc
from cyborg.api import requests, waiting
from cyborg.api.controllers import root
from cyborg.api.middleware import auth_token
from cyborg.conductor import rpcapi

#: [api] auth_strategy: name of the pipeline. ``main`` is what older paste files have.
PIPELINES = {'keystone': 'main', 'noauth2': 'noauth2'}

#: where paste files are installed, for those who have none among their configuration
INSTALLED = (pathlib.Path(sys.prefix, 'etc/cyborg'),
             pathlib.Path(__file__).parents[2] / 'etc/cyborg')


class Application(pecan.core.ExplicitPecan):
    """Pecan with a request and a response of its own for each call: its thread-locals are one
    per process, and a process may hold several of us."""

    def invoke_controller(self, controller: Any, args: Any, kwargs: Any, state: Any) -> None:
        """Call it with what is declared and take the response that it answers. Pecan would
        find out each time which arguments it has, and how to show what it answers."""
        state.response = controller(*args)


def make_app(conf: cfg.ConfigOpts, conductor: Any) -> Any:
    """The bare application; it believes the headers that say who asks."""
    auth_token.register_opts(conf)
    enforcer = policy.get_enforcer(conf)
    waiter = waiting.Waiter(conductor, conf.api.bind_wait, conf.api.max_waiting_binds)
    return Application(
        root.Root(conf, conductor, enforcer, waiter), hooks=[requests.Hook(conf, enforcer)],
        request_cls=requests.Request, guess_content_type_from_ext=False)


def app_factory(global_conf: dict[str, str], conf: cfg.ConfigOpts = cfg.CONF,
                conductor: Any = None, **local_conf: str) -> Any:
    """What paste calls; ``load_app`` hands it more than a paste file can say."""
    return make_app(conf, conductor or rpcapi.ConductorAPI(rpc.transport(conf)))


def load_app(conf: cfg.ConfigOpts, conductor: Any = None) -> Any:
    """The pipeline of [api] auth_strategy, which ends in our application."""
    context = loadwsgi.loadcontext(
        loadwsgi.APP, f'config:{_paste_file(conf)}', name=PIPELINES[conf.api.auth_strategy])
    # the end of a pipeline, or an application without one
    last = getattr(context, 'app_context', context)
    last.local_conf.update(conf=conf, conductor=conductor)
    return context.create()


def refuse_open_door(conf: cfg.ConfigOpts, host: str | None) -> None:
    """Without authentication everybody is an administrator, so only this machine may call.

    ``host``: where we listen; None: that is known to a WSGI server alone.
    """
    if (conf.api.auth_strategy != 'noauth2' or conf.api.allow_remote_noauth
            or host is not None and _is_loopback(host)):
        return
    raise errors.ConfigError(
        why=f'[api] auth_strategy = noauth2 would let anybody who reaches '
            f'{host or "this WSGI server"} do anything: let cyborg-api listen on 127.0.0.1, or '
            f'set allow_remote_noauth if that is what you want.')


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, and only one is known to be ours
        return host == 'localhost'


def _paste_file(conf: cfg.ConfigOpts) -> str:
    name = conf.api.api_paste_config
    candidates = (conf.find_file(name), *(directory / name for directory in INSTALLED))
    for candidate in candidates:
        if candidate and pathlib.Path(candidate).is_file():
            return str(pathlib.Path(candidate).absolute())
    raise errors.ConfigError(
        why=f'There is no {name}; set [api] api_paste_config to where it is.')
