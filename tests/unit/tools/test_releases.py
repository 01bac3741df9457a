# SPDX-License-Identifier: Apache-2.0
"""Cyborg can be installed with the versions of each OpenStack release that it supports."""

import configparser
import pathlib

import pytest
from packaging import requirements, utils, version

from tests.fixtures.releases import OURS, Release

ROOT = pathlib.Path(__file__).parents[3]
RELEASES = sorted((ROOT / 'tools/constraints').glob('*.txt'))
#: what no OpenStack release has a version for
UNCONSTRAINED = {'mfusepy', 'openstack-placement', 'waitress'}


def parsed(text):
    """The requirements in lines of text."""
    lines = (line.partition('#')[0].strip() for line in text.splitlines())
    return [requirements.Requirement(line) for line in lines if line]


def pins(path):
    """The versions of a release: name -> those for some Python that we support."""
    found = {}
    for each in parsed(path.read_text()):
        [specifier] = each.specifier
        found.setdefault(utils.canonicalize_name(each.name), set()).add(
            version.Version(specifier.version)
        )
    return found


def needed():
    """What Cyborg and its extras need."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / 'setup.cfg')
    extras = '\n'.join(setup['extras'].values())
    return parsed((ROOT / 'requirements.txt').read_text() + extras)


def test_the_releases_are_those_of_the_guide():
    guide = (ROOT / 'doc/source/admin/installation.rst').read_text()
    assert [path.stem for path in RELEASES] == ['2026.1', '2026.2']
    assert f'the libraries of OpenStack {RELEASES[0].stem} or later' in ' '.join(guide.split())


@pytest.mark.parametrize('path', RELEASES, ids=lambda path: path.stem)
def test_no_bound_excludes_a_version_of_a_release(path):
    pinned = pins(path)
    wanted = {utils.canonicalize_name(each.name): each.specifier for each in needed()}
    assert wanted.keys() - pinned.keys() <= UNCONSTRAINED
    excluded = {
        name: (str(specifier), [str(each) for each in pinned[name]])
        for name, specifier in wanted.items()
        if name in pinned and not any(specifier.contains(each) for each in pinned[name])
    }
    assert excluded == {}


def test_nothing_has_an_upper_bound():
    capped = [
        str(each)
        for each in needed()
        if any(bound.operator in ('<', '<=', '==', '~=') for bound in each.specifier)
    ]
    assert capped == []


@pytest.mark.parametrize('program', ['cyborg-dbsync', str(OURS / 'cyborg-dbsync')])
def test_a_release_runs_its_own_commands(program):
    other = Release('other', pathlib.Path('/other/bin'), ROOT)
    assert other.argv([program, 'upgrade']) == ['/other/bin/cyborg-dbsync', 'upgrade']


def test_a_release_runs_the_programs_of_others_where_they_are():
    other = Release('other', pathlib.Path('/other/bin'), ROOT)
    assert other.argv(['/opt/uwsgi/bin/uwsgi', '--master']) == ['/opt/uwsgi/bin/uwsgi', '--master']
