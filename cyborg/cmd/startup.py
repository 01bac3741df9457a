# SPDX-License-Identifier: Apache-2.0
"""Start-up code of every command: options, logging, signals, readable errors."""

import argparse
import contextlib
import ctypes
import gc
import pathlib
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol

import oslo_messaging as messaging
from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log
from oslo_reports import guru_meditation_report, opts
from oslo_service import service
from pbr import version

from cyborg import conf as our_conf
from cyborg import errors, library_internals, metrics, rpc, tracing
from cyborg.conf import opts as conf_opts

VERSION = version.VersionInfo('openstack-cyborg')
CONF = cfg.CONF
LOG = log.getLogger(__name__)
#: options of glibc's mallopt(): the size of a large block, as it is at the start of a process, and
#: the most heaps of threads, which by default is eight for each core
MEMORY_OPTIONS = {-3: 128 * 1024, -8: 2}


def configure(
    argv: Sequence[str] | None = None, default_config_files: list[str] | None = None
) -> cfg.ConfigOpts:
    """Read the options of this process. No other code of Cyborg reads cfg.CONF."""
    log.register_options(CONF)
    our_conf.register(CONF)
    opts.set_defaults(CONF)
    tracing.register(CONF)
    messaging.set_transport_defaults(rpc.EXCHANGE)
    db_options.set_defaults(CONF)
    for name, value in (('max_retries', 3), ('retry_interval', 2), ('max_pool_size', 20)):
        CONF.set_default(name, value, 'database')
    CONF(
        sys.argv[1:] if argv is None else list(argv),
        project='cyborg',
        version=VERSION.release_string(),
        default_config_files=default_config_files,
    )
    conf_opts.set_lib_defaults()
    # for the queue manager of oslo.messaging, which fails without a directory
    lockutils.set_defaults(f'{CONF.state_path}/locks')
    # operators need not act on the messages of these libraries at each start and stop
    log.set_defaults(
        default_log_levels=[
            *log.get_default_log_levels(),
            'alembic=WARNING',
            'amqp=ERROR',
            'oslo.service=WARNING',
            'oslo_service=WARNING',
            'stevedore=WARNING',
        ]
    )
    if not (CONF.log_file or CONF.log_dir):
        CONF.set_default('use_stderr', True)  # standard output is for the output of commands
    _set_up_logging(CONF)
    _read_all(CONF)
    metrics.prepare()
    return CONF


def _set_up_logging(conf: cfg.ConfigOpts) -> None:
    """Set up logging, as if log_config_append were not set if its file does not exist: the chart
    of OpenStack-Helm names a file that it does not create."""
    missing = conf.log_config_append
    if missing and not pathlib.Path(missing).exists():
        conf.set_override('log_config_append', None)
    else:
        missing = None
    log.setup(conf, 'cyborg')
    if missing:
        LOG.warning(
            'There is no %s, which log_config_append names: the other options of logging apply. '
            'Create the file, or unset log_config_append.',
            missing,
        )


def _read_all(conf: cfg.ConfigOpts) -> None:
    """Read all values, so that one that is not valid raises now and not later in a thread. The
    options of a driver are read when the driver is loaded."""
    for group, options in our_conf.GROUPS:
        section = conf if group is None else conf[group.name]
        for option in options:
            section[option.dest]


@contextlib.contextmanager
def exit_with_message() -> Iterator[None]:
    """Turn an error of Cyborg or of the configuration into one line and the exit status 1."""
    try:
        yield
    except errors.CyborgError as error:
        sys.exit(f'{sys.argv[0].rpartition("/")[2]}: {error.faultstring}')
    except (cfg.Error, log.LogConfigError) as error:
        sys.exit(f'{sys.argv[0].rpartition("/")[2]}: {_readable(error)}')


#: how oslo.config names the location of a value
LOCATION = re.compile(r" from LocationInfo\(location=<[^>]*>, detail=(?:'([^']*)'|\"([^\"]*)\")\)")


def _readable(error: Exception) -> str:
    """Return the message of a configuration error, with the name of the file in plain words."""
    return LOCATION.sub(lambda match: f' in {match[1] or match[2]}', str(error))


def reason(text: str) -> str:
    """Returns the text of an option --reason of a command, which others read; it is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError('it must not be blank')
    return text.strip()


def settle_memory() -> None:
    """Freeze the objects made at start-up so that the garbage collector skips them, and have large
    blocks of memory go back to the system when they are freed.

    By default glibc raises the size of a large block to that of the last one that was freed. Then
    blocks of that size stay with the process, in the heap of each thread that has used one. Only
    one thread of ours runs at a time, so they can share heaps.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError):  # only glibc has it
        for option, value in MEMORY_OPTIONS.items():
            ctypes.CDLL(None).mallopt(option, value)


class Service(Protocol):
    """The API server, a conductor or an agent."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class LaunchedService(service.Service):
    """Runs a service under oslo.service, which handles signals and worker processes."""

    def __init__(self, build: Callable[[], Service]) -> None:
        super().__init__()
        self._build = build
        self._service: Service | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        running = self._build()
        running.start()  # returns when the broker is available
        self._service = running
        settle_memory()

    def stop(self, graceful: bool = True) -> None:
        """Finish the requests in progress. There are none before start() has returned."""
        if self._service is not None:
            self._service.stop()
        self._stopped.set()
        super().stop(graceful)

    def wait(self) -> None:
        self._stopped.wait()


def serve(
    build: Callable[[cfg.ConfigOpts], Service],
    workers: Callable[[cfg.ConfigOpts], int] = lambda conf: 1,
) -> NoReturn:
    """Run a service until SIGTERM, which stops it gracefully.

    SIGHUP reads mutable options again, SIGUSR2 writes a Guru Meditation Report. The service is
    built twice: here, so that an error ends the command with a message, and in each worker, which
    must not share sockets or locks with its parent.
    """
    with exit_with_message(), warnings.catch_warnings():
        conf = configure()
        guru_meditation_report.TextGuruMeditation.setup_autorun(VERSION, conf=conf)
        build(conf)
        if (count := workers(conf)) > 1:
            metrics.share_between_processes()
        launcher = service.launch(
            conf,
            LaunchedService(lambda: build(conf)),
            workers=count,
            restart_method='mutate',
        )
        library_internals.mutate_in_place(launcher, conf)
    sys.exit(launcher.wait())
