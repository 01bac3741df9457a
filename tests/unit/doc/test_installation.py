# SPDX-License-Identifier: Apache-2.0
"""The installation guide cannot rot: what it tells to write is what our services read."""

import configparser
import importlib.util
import pathlib
import re
import shlex

import pytest
from keystoneauth1 import loading
from oslo_config import cfg, generator

from cyborg import conf as options
from cyborg.accelerator import privileged
from cyborg.cmd import startup

ROOT = pathlib.Path(__file__).parents[3]
GUIDE = (ROOT / 'doc/source/admin/installation.rst').read_text()
BLOCK = re.compile(r'^( *)\.\. code-block:: (\w+)\n((?:\1 +\S.*\n|\n)+)', re.MULTILINE)


def blocks(language):
    """The blocks of a language: (name, text)."""
    for _, kind, body in BLOCK.findall(GUIDE):
        if kind == language:
            name = re.search(r':name: (\S+)', body)
            yield name and name[1], re.sub(r'^ +:\w+:.*\n', '', body, flags=re.MULTILINE)


def snippet(name):
    """A file of the guide, as its reader would write it."""
    [text] = [text for each, text in blocks('ini') if each == name]
    return '\n'.join(line.strip() for line in text.splitlines())


def entry_points(section):
    """The names in a section of setup.cfg of this name."""
    text = (ROOT / 'setup.cfg').read_text()
    [body] = re.findall(rf'^{re.escape(section)} =\n((?:    .*\n)+)', text, re.MULTILINE)
    return set(re.findall(r'^    (\S+) =', body, re.MULTILINE))


def parsed(name):
    parser = configparser.ConfigParser(interpolation=None, default_section='none')
    parser.read_string(snippet(name))
    return parser


@pytest.fixture(scope='module')
def known():
    """section: the names of all options that the sample file has."""
    wanted = re.findall(
        r'^namespace = (\S+)',
        (ROOT / 'tools/config/cyborg-config-generator.conf').read_text(),
        re.MULTILINE,
    )
    found = {}
    for _, groups in generator._list_opts(wanted):
        for group, listed in groups:
            names = found.setdefault(getattr(group, 'name', group) or 'DEFAULT', set())
            names.update(name for option in listed for name in (option.name, option.dest))
    return found | {privileged.context.cfg_section: found['privsep']}


@pytest.mark.parametrize('name', ['controller-conf', 'compute-conf'])
def test_every_line_is_an_option_that_we_know(name, known):
    written = parsed(name)
    password = {option.dest for option in loading.get_auth_plugin_conf_options('password')}
    for section in written.sections():
        credentials = password if 'auth_type' in written[section] else set()
        assert set(written[section]) <= known[section] | credentials, section


@pytest.mark.parametrize('name', ['controller-conf', 'compute-conf'])
def test_every_value_can_be_read(name, tmp_path):
    (tmp_path / 'cyborg.conf').write_text(snippet(name))
    startup.CONF.reset()
    try:
        startup.configure(['--config-file', str(tmp_path / 'cyborg.conf')], default_config_files=[])
    finally:
        startup.CONF.reset()


def test_a_compute_host_learns_neither_the_database_nor_the_api():
    assert not {'database', 'keystone_authtoken', 'api', 'nova'} & {*parsed('compute-conf')}


def test_the_drivers_are_among_those_we_have():
    written = parsed('compute-conf')['agent']['enabled_drivers'].split(', ')
    assert written and set(written) <= entry_points('cyborg.accelerator.driver')


def test_the_wsgi_server_has_more_threads_than_binds_may_wait():
    written = parsed('uwsgi-ini')['uwsgi']
    module, _, name = written['module'].partition(':')
    assert importlib.util.find_spec(module) and name == 'application'
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    assert int(written['threads']) > conf.api.max_waiting_binds


def test_the_commands_are_among_those_we_install():
    commands = {
        line.split()[0]
        for line in re.findall(
            r'^ +\$ (.*)', ''.join(text for _, text in blocks('console')), re.MULTILINE
        )
    }
    commands |= {shlex.split(each)[0] for each in re.findall('``(cyborg-[^`]*)``', GUIDE)}
    ours = {each for each in commands if each.startswith('cyborg-')}
    assert ours and ours <= entry_points('console_scripts')


def test_sudo_allows_what_the_agent_calls():
    helper = parsed('compute-conf')[privileged.context.cfg_section]['helper_command']
    [(_, rule)] = blocks('text')
    called = helper.removeprefix('sudo ') + f' --privsep_context {privileged.context.pypath}'
    assert rule.strip().endswith(f'NOPASSWD: {called} --privsep_sock_path *')
