# SPDX-License-Identifier: Apache-2.0
"""Finds options in the configuration files that have no effect, or a bad one.

oslo.config ignores options that it does not know. Deployment tools write some, and a misspelled
option looks the same.
"""

import difflib
import importlib.metadata
import pathlib
from collections.abc import Iterable

from keystoneauth1 import exceptions, loading
from oslo_config import cfg

from cyborg.accelerator import driver, privileged
from cyborg.conductor import service

#: The namespaces, as in oslo-config-generator, of all options that Cyborg reads, also with extras.
NAMESPACES = (
    'cyborg',
    'os_acc',
    'castellan.config',
    'keystonemiddleware.auth_token',
    'oslo.concurrency',
    'oslo.db',
    'oslo.limit',
    'oslo.log',
    'oslo.messaging',
    'oslo.middleware.cors',
    'oslo.middleware.healthcheck',
    'oslo.middleware.http_proxy_to_wsgi',
    'oslo.middleware.sizelimit',
    'oslo.policy',
    'oslo.privsep',
    'oslo.reports',
    'oslo.service.service',
    'osprofiler',
)
#: section: names of options, with _ for -
Names = dict[str, set[str]]


def unread_options(conf: cfg.ConfigOpts) -> list[str]:
    """Return a sentence for each section of the files that has options which Cyborg does not read.

    The options of keystoneauth's plugins are known by the auth_type of the section.
    """
    written = _written(_files(conf))
    known = _known() | _chosen(conf)
    sentences = []
    for section, options in sorted(written.items()):
        if section not in known and 'auth_type' not in options:
            sentences.append(f'[{section}] is not read.')
            continue
        names = known.get(section, set()) | _plugin_options(options.get('auth_type'))
        if section not in known and not _is_auth_section(section, written):
            sentences.append(f'[{section}] is not read.')
        elif unread := sorted(options.keys() - names):
            listed = ', '.join(_with_suggestion(name, names) for name in unread)
            sentences.append(f'[{section}] {listed}: not read.')
    return sentences


def poor_choices(conf: cfg.ConfigOpts) -> list[str]:
    """Return a sentence for each option whose value makes Cyborg slow."""
    kept = conf.database.max_pool_size
    needed = service.FEWEST_THREADS + service.HEARTBEAT_THREADS + service.REPORT_THREADS
    if kept is not None and 0 < kept < needed:
        return [
            f'[database] max_pool_size = {kept}: a conductor opens a connection for almost every '
            f'message. Unset it, or set it to {needed} or more.'
        ]
    return []


def _files(conf: cfg.ConfigOpts) -> Iterable[pathlib.Path]:
    yield from (pathlib.Path(name) for name in conf.config_file or ())
    for directory in conf.config_dir or ():
        yield from sorted(pathlib.Path(directory).glob('*.conf'))


def _written(files: Iterable[pathlib.Path]) -> dict[str, dict[str, str]]:
    """Return the last value of every option in every section of the files."""
    written: dict[str, dict[str, str]] = {}
    for path in files:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(path), sections).parse()
        for section, options in sections.items():
            values = written.setdefault(section, {})
            values |= {name.replace('-', '_'): each[-1] for name, each in options.items()}
    return written


def _known() -> Names:
    known: Names = {}
    for point in importlib.metadata.entry_points(group='oslo.config.opts'):
        if point.name in NAMESPACES:
            for group, options in point.load()():
                section = getattr(group, 'name', group) or 'DEFAULT'
                for option in options:
                    _add(known, section, option)
    # each context of oslo.privsep has a section of its own
    known[privileged.context.cfg_section] = known['privsep']
    return known


def _chosen(conf: cfg.ConfigOpts) -> Names:
    """Return the options of sections that drivers read because of the values of other options."""
    chosen: Names = {}
    for cls in driver.installed():
        cls.register_options(conf)
        for section, options in cls.chosen_options(conf).items():
            for option in options:
                _add(chosen, section, option)
    return chosen


def _add(known: Names, section: str, option: cfg.Opt) -> None:
    known.setdefault(section, set()).add(option.dest)
    for old in option.deprecated_opts:
        name = (old.name or option.dest).replace('-', '_')
        known.setdefault(old.group or section, set()).add(name)


def _plugin_options(auth_type: str | None) -> set[str]:
    if not auth_type:
        return set()
    try:
        options = loading.get_auth_plugin_conf_options(auth_type)
    except exceptions.NoMatchingPlugin:  # the services say so when they start
        return set()
    names: Names = {}
    for option in options:
        _add(names, 'plugin', option)
    return names['plugin'] | {'auth_section', 'auth_type'}


def _is_auth_section(section: str, written: dict[str, dict[str, str]]) -> bool:
    return any(options.get('auth_section') == section for options in written.values())


def _with_suggestion(name: str, names: set[str]) -> str:
    close = difflib.get_close_matches(name, names, 1, 0.9)
    return f'{name} (is {close[0]} meant?)' if close else name
