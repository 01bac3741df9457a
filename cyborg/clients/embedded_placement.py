# SPDX-License-Identifier: Apache-2.0
"""Placement's own WSGI application, in this process, on an SQLite file."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from oslo_config import cfg
from oslo_db.sqlalchemy import enginefacade

from cyborg import errors

# Placement has its database in a global variable, and in SQLite a transaction that reads first and
# then writes fails if another one writes. So this process serves one request at a time.
_LOCK = threading.Lock()
TOKEN = 'admin'


class _Application:
    """Placement on one database, independent of other uses of Placement in this process."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        from placement import db_api, deploy
        from placement.objects import resource_class, trait

        self._global = db_api.placement_context_manager
        self._database = enginefacade.transaction_context()
        options = dict(conf.placement_database.items())
        del options['sync_on_startup']
        self._database.configure(**options)
        with self._exclusive():
            # Placement has these flags per process, but each database must be synchronized
            trait._TRAITS_SYNCED = False  # noqa: SLF001
            resource_class._RESOURCE_CLASSES_SYNCED = False  # noqa: SLF001
            self._application: WSGIApplication = deploy.loadapp(conf)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ.pop('HTTP_X_ROLES', None)
        if environ.get('HTTP_X_AUTH_TOKEN') == TOKEN:  # Placement itself would only grant admin
            environ['HTTP_X_ROLES'] = 'admin,service'
        with self._exclusive():
            return list(self._application(environ, start_response))

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with _LOCK:
            restore = self._global.patch_factory(self._database)
            try:
                yield
            finally:
                restore()


def load(path: Path) -> WSGIApplication:
    """Returns Placement on this database file, which is created or upgraded first.

    It accepts the token ``admin`` only, since an application inside a process needs no Keystone.
    """
    try:
        import placement.conf
    except ImportError as error:
        raise errors.ConfigError(
            why='Placement is not installed here: pip install openstack-placement.'
        ) from error
    # the mode is stored in the file: readers never wait, and commits survive a SIGKILL
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute('PRAGMA journal_mode = WAL')
    conf = cfg.ConfigOpts()
    placement.conf.register_opts(conf)
    for group, options in _options(path).items():
        for name, value in options.items():
            conf.set_default(name, value, group)
    conf([], project='cyborg-placement', default_config_files=[], default_config_dirs=[])
    return _Application(conf)


def _options(path: Path) -> dict[str, dict[str, Any]]:
    return {
        'api': {'auth_strategy': 'noauth2'},
        'placement_database': {'connection': f'sqlite:///{path}', 'sync_on_startup': True},
        # its own name, because policy.yaml may be found in the directories of other services
        'oslo_policy': {'policy_file': 'embedded-placement-policy.yaml'},
    }
