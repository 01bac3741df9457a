# SPDX-License-Identifier: Apache-2.0
"""What every command does first and last: options, logging, signals, one sentence on failure."""

import contextlib
import gc
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log
from oslo_reports import guru_meditation_report, opts
from oslo_service import service
from pbr import version

from cyborg import conf as our_conf
from cyborg import errors, rpc
from cyborg.conf import opts as conf_opts

VERSION = version.VersionInfo('openstack-cyborg')
CONF = cfg.CONF


def configure(argv: Sequence[str] | None = None,
              default_config_files: list[str] | None = None) -> cfg.ConfigOpts:
    """Read the options of this process; the only place that meets cfg.CONF."""
    log.register_options(CONF)
    our_conf.register(CONF)
    opts.set_defaults(CONF)
    messaging.set_transport_defaults(rpc.EXCHANGE)
    db_options.set_defaults(CONF)
    for name, value in (('max_retries', 3), ('retry_interval', 2), ('max_pool_size', 16)):
        CONF.set_default(name, value, 'database')
    CONF(sys.argv[1:] if argv is None else list(argv), project='cyborg',
         version=VERSION.release_string(), default_config_files=default_config_files)
    conf_opts.set_lib_defaults()
    # what these say at each start and stop is nothing that an operator would act upon
    log.set_defaults(default_log_levels=[
        *log.get_default_log_levels(), 'alembic=WARNING', 'amqp=ERROR', 'oslo.service=WARNING',
        'oslo_service=WARNING', 'stevedore=WARNING'])
    if not (CONF.log_file or CONF.log_dir):
        CONF.set_default('use_stderr', True)  # what a command prints stays readable by others
    log.setup(CONF, 'cyborg')
    _read_all(CONF)
    return CONF


def _read_all(conf: cfg.ConfigOpts) -> None:
    """A value that cannot be read raises now, not when a thread first asks for it."""
    for group, options in conf_opts.list_opts():
        section = conf if group == 'DEFAULT' else conf[group]
        for option in options:
            section[option.dest]


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """A mistake of the operator's is shown as a sentence, and the exit status is 1."""
    try:
        yield
    except errors.CyborgError as error:
        sys.exit(f'{sys.argv[0].rpartition("/")[2]}: {error.faultstring}')
    except cfg.Error as error:
        sys.exit(f'{sys.argv[0].rpartition("/")[2]}: {error}')


def settle() -> None:
    """What a process consists of once it has started is there to stay: the collector need not
    look at all of it again whenever a long list is made."""
    gc.collect()
    gc.freeze()


class Part(Protocol):
    """What a process runs."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Running(service.Service):
    """A part under oslo.service, which brings the signals and the worker processes."""

    def __init__(self, build: Callable[[], Part]) -> None:
        super().__init__()
        self._build = build
        self._part: Part | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        part = self._build()
        part.start()  # waits for a broker that is away
        self._part = part
        settle()

    def stop(self, graceful: bool = True) -> None:
        """Finish what is in flight; before the start has ended that is nothing."""
        if self._part is not None:
            self._part.stop()
        self._stopped.set()
        super().stop(graceful)

    def wait(self) -> None:
        self._stopped.wait()


def serve(build: Callable[[cfg.ConfigOpts], Part],
          workers: Callable[[cfg.ConfigOpts], int] = lambda conf: 1) -> NoReturn:
    """Run until told to stop: SIGTERM ends gracefully, SIGHUP mutates, SIGUSR2 reports.

    The part is built twice: here, so that a mistake ends the command with a sentence, and in
    each worker, which must not share sockets or locks with its parent.
    """
    with one_sentence(), warnings.catch_warnings():
        conf = configure()
        guru_meditation_report.TextGuruMeditation.setup_autorun(VERSION, conf=conf)
        build(conf)
        launcher = service.launch(conf, Running(lambda: build(conf)), workers=workers(conf),
                                  restart_method='mutate')
        _mutate_in_place(launcher, conf)
    sys.exit(launcher.wait())


def _mutate_in_place(launcher: Any, conf: cfg.ConfigOpts) -> None:
    """Have workers take new values as they run. By itself the launcher would end them and start
    others, and who calls in between would find nobody."""

    def prepare(service_id: Any, worker_id: int, worker: Any) -> None:
        worker.reload = conf.mutate_config_files
    launcher._manager.register_hooks(on_new_worker=prepare)  # noqa: SLF001
