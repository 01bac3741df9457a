# SPDX-License-Identifier: Apache-2.0
"""Which images a project may load, and that no file is left behind."""

import hashlib
import tempfile

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.accelerator.driver import Driver
from cyborg.agent import image_files
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.agent.driver_guard import Guard

IMAGE = '4f0c5ab1-3f5c-4b7e-9a35-0b1c7c2d9f10'
DATA = b'bits'


class Reading(Driver):
    """Remembers what it was given."""

    name, type = 'reading', 'FPGA'

    def __init__(self):
        self.loaded = []

    def discover(self):
        return []

    def program(self, deployable, image, properties):
        self.loaded.append((deployable, image.read_bytes()))
        self.properties = properties


class Images:
    def __init__(self, **facts):
        self._facts = facts

    def image(self, uuid, request_id):
        return {
            'id': uuid,
            'status': 'active',
            'size': len(DATA),
            'os_hash_algo': 'sha256',
            'os_hash_value': hashlib.sha256(DATA).hexdigest(),
            'visibility': 'private',
            'owner': 'theirs',
        } | self._facts

    def members(self, uuid, request_id):
        return {'friends': 'pending'}

    def data(self, uuid, request_id):
        yield DATA


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('state_path', str(tmp_path))
    return conf


@pytest.fixture
def driver():
    return Reading()


@pytest.fixture
def load(conf, driver):
    def load(glance, project_id=None):
        wanted = WantedImage({'bitstream_id': IMAGE}, '8086', [], [], project_id, None)
        with Bitstreams(conf, 'compute1', glance).fetched(wanted) as image:
            Guard(driver, 60).program('card', 'region0', image.path, image.properties)

    return load


@pytest.mark.parametrize('project', [None, 'theirs', 'mine', 'friends'])
@pytest.mark.parametrize(
    ('visibility', 'allowed'),
    [
        ('public', {None, 'theirs', 'mine', 'friends'}),
        ('community', {None, 'theirs', 'mine', 'friends'}),
        ('shared', {None, 'theirs', 'friends'}),
        ('private', {None, 'theirs'}),
    ],
)
def test_a_project_gets_the_images_it_sees(load, driver, visibility, allowed, project):
    glance = Images(visibility=visibility)
    if project in allowed:
        load(glance, project_id=project)
        assert driver.loaded == [('region0', DATA)]
    else:
        with pytest.raises(errors.ImageRefused, match='project mine|project friends'):
            load(glance, project_id=project)
        assert driver.loaded == []


def test_what_was_left_of_an_agent_that_was_killed_is_removed(conf, tmp_path, load):
    (tmp_path / 'bitstream-compute1-abc').write_bytes(b'half')
    others = {'bitstream-compute10-abc', 'bitstream-compute1-b-abc'}
    for name in others:
        (tmp_path / name).write_bytes(b"another host's")
    load(Images())
    assert {path.name for path in tmp_path.iterdir()} == others


def test_what_was_left_in_the_directory_of_tempfile_is_removed(tmp_path, monkeypatch):
    # given a host without a state_path, whose agent was killed
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    (tmp_path / 'bitstream-compute1-abc').write_bytes(b'half')
    (tmp_path / 'bitstream-compute1-b-abc').write_bytes(b"another host's")
    (tmp_path / 'bitstream-compute1-def').mkdir()  # cannot be removed
    # when it starts again
    image_files.Files(tmp_path / 'missing', 'compute1', 0)
    assert {path.name for path in tmp_path.iterdir()} == {
        'bitstream-compute1-b-abc',
        'bitstream-compute1-def',
    }


def test_a_host_without_a_glance_says_what_to_set(load):
    with pytest.raises(errors.Unavailable, match=r'set \[glance\] auth_type'):
        load(None)


def test_a_driver_is_told_what_glance_knows_of_the_image(load, driver):
    load(Images(name='aes.gbs', bitstream_type='gbs', tags=[]))
    assert driver.properties['name'] == 'aes.gbs'
    assert driver.properties['bitstream_type'] == 'gbs'
    assert driver.properties.keys().isdisjoint({'tags', 'size'})  # no text
