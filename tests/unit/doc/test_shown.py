# SPDX-License-Identifier: Apache-2.0
"""No page names a command, an argument, an option or a path that does not exist."""

import configparser
import re

import pytest
from keystoneauth1 import loading

from cyborg.accelerator.drivers import intel_nic, nvidia_types
from doc.source.contributor import acme_turbo
from tests.fixtures import pages, parsers, shown

PAGES = shown.names()
#: programs of others, of which only the files of this repository that they get are checked
OTHERS = set('awk cd cut echo export grep install jq ls pidof systemctl useradd'.split())
OURS = r'(?:\S*/)?(?:cyborg-\w+|openstack|make|python3?|pip|curl)\s'
MAKEFILE = (shown.ROOT / 'Makefile').read_text()
METHOD_AND_PATH = re.compile(r'(GET|POST|PATCH|PUT|DELETE) (/\S*.*)')
OPTION = re.compile(r'\[(\w+|mdev_<type>)\](?: ([\w.]+)(?: = .*)?)?')
#: options of other services that the pages name
NOT_OURS = {
    # auth_strategy: that of the upstream service, which is read under another name
    'DEFAULT': {'arq_binding_timeout', 'auth_strategy'},
    'compute': {'resource_provider_association_refresh'},
    'cyborg': {'region_name'},
    'devices': {'enabled_mdev_types'},
    'filter_scheduler': {'weight_classes', 'accelerator_weight_multiplier'},
    'key_manager': {'backend'},
    'mdev_<type>': {'device_addresses'},
    # the list of oslo.messaging lacks them
    'oslo_messaging_metrics': {
        'metrics_enabled',
        'metrics_process_name',
        'metrics_socket_file',
    },
    'pci': {'device_spec', 'report_in_placement'},
    'placement': {'allocation_candidates_generation_strategy'},
    'profiler': {'connection_string', 'enabled', 'hmac_keys', 'trace_sqlalchemy'},
    'quota': {
        'driver',
        'unified_limits_resource_list',
        'unified_limits_resource_strategy',
    },
    'scheduler': {'max_placement_results'},
    'service_catalog': set(),
    'service_user': {'send_service_user_token'},
    'uwsgi': None,
}


def all_commands():
    return [each for page in PAGES for each in shown.commands(page)]


def all_mentioned():
    return [each for page in PAGES for each in shown.mentioned(page)]


def of(program, found):
    chosen = [each for each in found if each.program == program]
    assert chosen
    return chosen


# -- commands ----------------------------------------------------------------------------------


@pytest.mark.parametrize('page', [page for page in PAGES if page != shown.README])
def test_a_command_is_shown_with_a_prompt(page):
    blocks = [lines for _, lines in shown.literal_blocks(page)]
    blocks += [
        lines for kind in ('text', 'none', 'shell') for _, _, lines in pages.blocks(page, kind)
    ]
    assert [line for lines in blocks for line in lines if re.match(OURS, line)] == []


def test_there_is_no_program_that_nothing_checks():
    known = (
        OTHERS | set(shown.scripts()) | {'openstack', 'make', 'python', 'python3', 'pip', 'curl'}
    )
    assert [str(each) for each in all_commands() if each.program not in known] == []


def test_programs_of_cyborg_and_its_tools_accept_their_arguments():
    wanted = []
    for each in all_commands() + all_mentioned():
        if each.program in shown.scripts() and each.program != 'cyborg-fpga-load':
            wanted.append((each, shown.scripts()[each.program], each.words[1:]))
        elif each.program == 'python' and each.words[1] == '-m':
            wanted.append((each, each.words[2], each.words[3:]))
    assert len(wanted) > 50
    said = parsers.errors((target, words) for _, target, words in wanted)
    refused = [
        f'{each}: {error}'
        for (each, *_), error in zip(wanted, said, strict=True)
        if error and not (each.is_mentioned and parsers.is_incomplete(error))
    ]
    assert refused == []


def test_a_wrong_argument_is_noticed():
    manage, fleet = shown.scripts()['cyborg-manage'], 'tools.fleet'
    said = parsers.errors(
        [
            (manage, ('audit',)),
            (manage, ('audit', '--mend')),
            (manage, ('host', 'forgot', 'compute1')),
            (manage, ('host', 'forget')),
            (fleet, ('--config-file', 'x', '--hosts', 'many')),
        ]
    )
    assert said[0] is None
    assert 'unrecognized arguments: --mend' in said[1]
    assert 'invalid choice' in said[2]
    assert parsers.is_incomplete(said[3])
    assert not any(parsers.is_incomplete(each) for each in (said[1], said[2], said[4]))


def test_the_openstack_client_has_the_accelerator_commands():
    known = shown.IN_TREE | shown.plugin_commands()
    for each in all_commands() + all_mentioned():
        words = each.words[1:] if each.words[0] == 'openstack' else each.words
        if words[:1] == ('accelerator',) and len(words) > 2:
            assert shown.command_name(words, known), str(each)


def test_every_command_of_ours_is_in_the_list():
    """Arguments are checked where the client is installed: test_shown_commands.py."""
    listed = {
        shown.command_name(each.words, shown.plugin_commands())
        for each in shown.mentioned('user/commands.rst')
    }
    assert listed - {None} == shown.plugin_commands()


def test_make_has_the_targets():
    targets = set(re.findall(r'^([a-z-]+)(?: [a-z-]+)*:(?!=)', MAKEFILE, re.MULTILINE)) | {'sample'}
    for each in of('make', all_commands() + all_mentioned()):
        assert each.words[1] in targets, str(each)


def test_pip_gets_extras_that_exist():
    named = {
        (str(each), extra)
        for each in of('pip', all_commands())
        for word in each.words
        for extra in re.findall(r'^\.\[(.*)\]$', word)
    }
    assert named and {extra for _, extra in named} <= shown.extras(), named


def test_files_of_the_repository_exist():
    named = [
        word
        for each in all_commands()
        for word in each.words[1:]
        if re.match(r'(etc|tools|tests|doc|devstack)/', word)
    ]
    assert named and [word for word in named if not (shown.ROOT / word).exists()] == []


# -- the API -----------------------------------------------------------------------------------


def test_curl_asks_for_what_the_api_serves():
    for each in of('curl', all_commands()):
        [url] = [word for word in each.words if re.match(r'https?://|\$CYBORG/', word)]
        path = re.sub(r'^\$CYBORG/', '/v2/', url)
        path = re.sub(r'^https?://[^/]+(/accelerator)?', '', path)
        method = 'POST' if '-d' in each.words else 'GET'
        assert shown.is_served(method, path), str(each)


def test_operations_in_the_text_are_served():
    found = [
        (place, match)
        for page in PAGES
        for place, literal in shown.literals(page)
        if (match := METHOD_AND_PATH.fullmatch(literal))
    ]
    found += [
        (page, match)
        for page in PAGES
        for _, lines in shown.literal_blocks(page)
        for line in lines
        if (match := METHOD_AND_PATH.fullmatch(line))
    ]
    assert len(found) > 20
    wrong = [f'{place}: {each[0]}' for place, each in found if not shown.is_served(*each.groups())]
    assert wrong == []


# -- options -----------------------------------------------------------------------------------


#: options of sections that operators name themselves
NAMED_BY_OPERATORS = {
    r'vgpu_.*': nvidia_types.TYPE_OPTIONS,
    r'x710_static': intel_nic.TYPE_OPTIONS,
    # the driver of the guide is not installed
    acme_turbo.AcmeTurboDriver.name: acme_turbo.AcmeTurboDriver.options,
}


def is_option(section, name):
    ours = shown.options()
    for pattern, options in NAMED_BY_OPERATORS.items():
        if re.fullmatch(pattern, section):
            return name in {option.name for option in options}
    if section in NOT_OURS and (NOT_OURS[section] is None or name in {*NOT_OURS[section], None}):
        return True
    if section not in ours:
        return False
    plugins = ('password', 'v3applicationcredential')
    known = ours[section] | {'auth_section'}
    if 'auth_type' in known or section == 'oslo_limit':  # its list has no auth_type
        known |= {'auth_type'}
        known |= {
            option.dest
            for plugin in plugins
            for option in loading.get_auth_plugin_conf_options(plugin)
        }
    return name is None or name in known


def test_options_in_the_text_exist():
    found = [
        (place, match)
        for page in PAGES
        for place, literal in shown.literals(page)
        if (match := OPTION.fullmatch(literal))
    ]
    assert len(found) > 100
    wrong = [f'{place}: {each[0]}' for place, each in found if not is_option(*each.groups())]
    assert wrong == []


@pytest.mark.parametrize('page', PAGES)
def test_options_in_examples_exist(page):
    assert [
        lines[0] for _, lines in shown.literal_blocks(page) if OPTION.fullmatch(lines[0])
    ] == [], 'show it as a block of ini'
    for number, _, lines in pages.blocks(page, 'ini'):
        parser = configparser.ConfigParser(interpolation=None, default_section='none', strict=False)
        parser.read_string('\n'.join(lines))
        for section in parser.sections():
            for name in parser[section]:
                assert is_option(section, name), f'{page}:{number}: [{section}] {name}'


# -- what finds them ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    'command, found',
    [
        ('a -b \\\n  c', [('a', '-b', 'c')]),
        ('X=1 a | b; c && d > e  # f', [('a',), ('b',), ('c',), ('d',)]),
        ('X=$(a $(b c))', [('b', 'c'), ('a', '1')]),
        ('for each in 1 2; do\n  a $each; done', [('a', '1')]),
        ("a -d '\n  [1, 2]'", [('a', '-d', '\n  [1, 2]')]),
    ],
)
def test_a_line_of_the_shell_is_split_into_programs(command, found):
    assert shown.split(command) == found


def test_commands_are_found_in_blocks_and_in_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, 'SOURCE', tmp_path)
    (tmp_path / 'page.rst').write_text(
        'Run ``cyborg-manage\naudit``::\n\n   make it\n\n'
        '.. code-block:: console\n\n   $ a b\n   c\n'
    )
    assert [str(each) for each in shown.commands('page.rst')] == ['page.rst:8: a b']
    assert [str(each) for each in shown.mentioned('page.rst')] == [
        'page.rst:1: cyborg-manage audit'
    ]
    assert list(shown.literal_blocks('page.rst')) == [(4, ['make it'])]
    assert not shown.is_served('GET', '/v2/nonsense')
    assert not shown.is_served('PUT', '/v2/devices/{uuid}')
    assert not is_option('agent', 'nonsense') and not is_option('nonsense', None)
