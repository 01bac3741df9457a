# SPDX-License-Identifier: Apache-2.0
"""Images are found, fetched, checked and kept, or a sentence says why not."""

import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from keystoneauth1.exceptions import ConnectFailure
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.agent import image_search, signatures
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.clients.glance import Glance
from cyborg.sim import glance as sim

MIB = 1024 * 1024
FUNCTION = '9b4e17d0-c6a3-4258-8f00-1a2b3c4d5e6f'
REGION = 'ce489693-98f0-5f33-946d-560708be108a'
DATA = bytes(range(256)) * 64
ENTER = ['unshare', '--user', '--map-root-user', '--mount']


@pytest.fixture
def glance():
    glance = sim.Glance()
    glance.start()
    yield glance
    glance.goes_on.set()
    glance.stop()


@pytest.fixture
def conf(tmp_path, glance):
    conf = cfg.ConfigOpts()
    options.register(conf)
    (tmp_path / 'cyborg.conf').write_text(f'[glance]\nauth_type = none\nendpoint = {glance.url}\n')
    conf(['--config-file', str(tmp_path / 'cyborg.conf')])
    (tmp_path / 'state').mkdir()
    conf.set_override('state_path', str(tmp_path / 'state'))
    return conf


@pytest.fixture
def state(conf):
    return Path(conf.state_path)


@pytest.fixture
def made(conf):
    """A new agent's, with these options."""

    def make(**options):
        for name, value in options.items():
            conf.set_override(name, value, 'agent')
        return Bitstreams(conf, 'compute1', Glance.connect(conf))

    return make


def fetch(bitstreams, progress=lambda sentence: None, **wanted):
    with bitstreams.fetched(WantedImage(**wanted), progress) as fetched:
        assert fetched.path.stat().st_mode & 0o777 == 0o600
        return fetched.uuid, fetched.path.read_bytes()


def by_id(name):
    return {'image': {'bitstream_id': name}}


def files(state):
    return sorted(str(path.relative_to(state)) for path in state.rglob('*') if path.is_file())


def downloads(glance):
    return sum(path.endswith('/file') for path, _ in glance.requests)


def refusal(bitstreams, **wanted):
    with pytest.raises(errors.ImageRefused) as caught:
        fetch(bitstreams, **wanted)
    return caught.value.faultstring


# Finding


def test_an_image_is_found_by_its_id_in_either_spelling(made, glance):
    name = glance.add(DATA, color='green', tags=['FPGA'], min_disk=0)
    bitstreams = made()
    for spelling in (name, name.replace('-', ''), name.upper()):
        with bitstreams.fetched(WantedImage({'bitstream_id': spelling})) as fetched:
            assert (fetched.uuid, fetched.path.read_bytes()) == (name, DATA)
            assert fetched.properties['color'] == 'green'
            assert all(isinstance(value, str) for value in fetched.properties.values())
        assert not fetched.path.exists()


@pytest.mark.parametrize('value', ['../../v3/users', 'gzip', f'{FUNCTION}/file', ' '])
def test_an_id_that_is_none_never_becomes_a_path(made, glance, value):
    with pytest.raises(errors.ImageRefused):
        fetch(made(), **by_id(value))
    assert glance.requests == []


@pytest.mark.parametrize(
    'image', [{}, {'colour': 'green'}, {'bitstream_id': FUNCTION, 'function_id': FUNCTION}]
)
def test_a_request_names_an_image_in_one_way(image):
    with pytest.raises(errors.ImageRefused, match='exactly one of'):
        WantedImage(image)


@pytest.mark.parametrize('facts', [{'name': 'gzip.gbs'}, {'bs-name': 'gzip.gbs'}])
def test_an_image_is_found_by_its_name(made, glance, facts):
    glance.add(b'other', name='gzip')
    name = glance.add(DATA, **facts)
    assert fetch(made(), image={'bitstream_name': 'gzip.gbs'}) == (name, DATA)


@pytest.mark.parametrize('asked', [FUNCTION, FUNCTION.replace('-', ''), FUNCTION.upper()])
@pytest.mark.parametrize('stored', [FUNCTION, FUNCTION.replace('-', ''), FUNCTION.upper()])
@pytest.mark.parametrize('key', ['function_uuid', 'accel:function_id'])
def test_an_image_is_found_by_its_function_in_every_spelling(made, glance, key, stored, asked):
    glance.add(b'other', function_uuid=REGION)
    name = glance.add(DATA, **{key: stored})
    assert fetch(made(), image={'function_id': asked}) == (name, DATA)


def test_an_id_of_a_function_need_not_be_a_uuid(made, glance):
    name = glance.add(DATA, function_uuid='3afb')
    assert fetch(made(), image={'function_id': '3AFB'}) == (name, DATA)


@pytest.mark.parametrize('key', ['function_name', 'accel:function_name'])
def test_an_image_is_found_by_the_name_of_its_function(made, glance, key):
    name = glance.add(DATA, **{key: 'gzip'})
    glance.add(b'other', **{key: 'GZIP'})
    assert fetch(made(), image={'function_name': 'gzip'}) == (name, DATA)


def test_the_region_chooses_among_images_of_one_function(made, glance):
    glance.add(b'other', function_uuid=FUNCTION, region_uuid=str(uuid.uuid4()))
    name = glance.add(DATA, function_uuid=FUNCTION, region_uuid=REGION.replace('-', ''))
    assert fetch(made(), image={'function_id': FUNCTION}, region_types=[REGION]) == (name, DATA)


def test_none_is_said(made, glance):
    glance.add(DATA, function_uuid=FUNCTION, status='deactivated')
    assert refusal(made(), image={'function_id': FUNCTION}) == (
        f'Image of function {FUNCTION} is not loaded: Glance has no active image whose '
        'function_uuid or accel:function_id has this value.'
    )


def test_of_those_that_do_not_fit_it_is_said_why(made, glance):
    name = glance.add(DATA, function_name='gzip', vendor='xilinx')
    assert refusal(
        made(), image={'function_name': 'gzip'}, vendor='8086', boards=['intel pac']
    ) == (
        'Image of function gzip is not loaded: no image in Glance matches the deployable: '
        f'{name}: its vendor is xilinx; the deployable has 8086, intel.'
    )


def test_several_are_named(made, glance):
    names = sorted(glance.add(DATA, name='gzip') for _ in range(2))
    assert refusal(made(), image={'bitstream_name': 'gzip'}) == (
        f'Image named gzip is not loaded: 2 images match: {", ".join(names)}. Ask for one of '
        'them by bitstream_id, or remove the property from the others.'
    )


def test_an_image_that_has_both_properties_is_one(made, glance):
    name = glance.add(DATA, **{'function_uuid': FUNCTION, 'accel:function_id': FUNCTION})
    assert fetch(made(), image={'function_id': FUNCTION}) == (name, DATA)


def test_images_of_servers_that_ask_for_a_function_are_none_that_have_it(made, glance):
    asks = {'accel:function_id': FUNCTION}
    glance.add(b'a disk', disk_format='qcow2', **asks)
    name = glance.add(DATA, disk_format='raw', **asks)
    assert fetch(made(), image={'function_id': FUNCTION}) == (name, DATA)
    glance.images[name]['function_uuid'] = FUNCTION
    glance.add(b'another disk', disk_format='raw', **asks)
    assert fetch(made(), image={'function_id': FUNCTION}) == (name, DATA)


@pytest.mark.parametrize(
    ('facts', 'members', 'is_found'),
    [
        ({'visibility': 'public'}, {}, True),
        ({'visibility': 'private', 'owner': 'mine'}, {}, True),
        ({'visibility': 'community', 'owner': 'mine'}, {}, True),
        ({'visibility': 'shared'}, {'mine': 'accepted'}, True),
        ({'visibility': 'shared'}, {'mine': 'pending'}, False),
        ({'visibility': 'shared'}, {'other': 'accepted'}, False),
        ({'visibility': 'private'}, {'mine': 'accepted'}, False),
        ({'visibility': 'community'}, {}, False),
    ],
)
def test_a_project_is_not_given_an_image_that_others_put_forward(
    made, glance, facts, members, is_found
):
    name = glance.add(DATA, name='gzip', **facts)
    glance.members[name] = members
    wanted = {'image': {'bitstream_name': 'gzip'}, 'project_id': 'mine'}
    if is_found:
        assert fetch(made(), **wanted) == (name, DATA)
    else:
        assert 'owned by project mine' in refusal(made(), **wanted)


def asked_for_members(glance):
    return [path for path, _ in glance.requests if path.endswith('/members')]


@pytest.mark.parametrize('facts', [{'visibility': 'public'}, {'owner': 'mine'}])
def test_images_that_others_share_do_not_delay_or_replace_a_projects_own(made, glance, facts):
    for _ in range(3):
        theirs = glance.add(b'theirs', name='gzip', visibility='shared')
        glance.members[theirs] = {'mine': 'accepted'}
    name = glance.add(DATA, name='gzip', **facts)
    wanted = {'image': {'bitstream_name': 'gzip'}, 'project_id': 'mine'}
    assert fetch(made(), **wanted) == (name, DATA)
    assert not asked_for_members(glance)


def test_a_shared_image_is_found_beside_an_own_one_for_another_region(made, glance):
    glance.add(b'mine', function_uuid=FUNCTION, region_uuid=str(uuid.uuid4()), owner='mine')
    name = glance.add(DATA, function_uuid=FUNCTION, region_uuid=REGION, visibility='shared')
    glance.members[name] = {'mine': 'accepted'}
    wanted = {'image': {'function_id': FUNCTION}, 'region_types': [REGION], 'project_id': 'mine'}
    assert fetch(made(), **wanted) == (name, DATA)


def test_a_flood_of_shared_images_is_refused_without_a_call_for_each(made, glance, monkeypatch):
    monkeypatch.setattr(image_search, 'MOST_SHARED', 2)
    for _ in range(3):
        glance.add(DATA, name='gzip', visibility='shared')
    assert refusal(made(), image={'bitstream_name': 'gzip'}, project_id='mine') == (
        'Image named gzip is not loaded: other projects share 3 images that match, more than are '
        'searched (2). Ask for one of them by bitstream_id.'
    )
    assert not asked_for_members(glance)


def test_shared_images_for_other_regions_do_not_count_as_a_flood(made, glance, monkeypatch):
    monkeypatch.setattr(image_search, 'MOST_SHARED', 2)
    for _ in range(3):
        glance.add(DATA, function_uuid=FUNCTION, region_uuid=str(uuid.uuid4()), visibility='shared')
    name = glance.add(DATA, function_uuid=FUNCTION, region_uuid=REGION, visibility='shared')
    glance.members[name] = {'mine': 'accepted'}
    wanted = {'image': {'function_id': FUNCTION}, 'region_types': [REGION], 'project_id': 'mine'}
    assert fetch(made(), **wanted) == (name, DATA)
    assert len(asked_for_members(glance)) == 1


def test_of_an_accepted_image_that_does_not_fit_it_is_said_why(made, glance):
    name = glance.add(DATA, name='gzip', vendor='10ee', visibility='shared')
    glance.members[name] = {'mine': 'accepted'}
    glance.add(DATA, name='gzip', vendor='8086', visibility='shared')
    wanted = {'image': {'bitstream_name': 'gzip'}, 'vendor': '8086', 'project_id': 'mine'}
    assert refusal(made(), **wanted) == (
        'Image named gzip is not loaded: no image in Glance matches the deployable: '
        f'{name}: its vendor is 10ee; the deployable has 8086.'
    )


def test_shared_images_that_do_not_fit_cost_a_limited_number_of_calls(made, glance, monkeypatch):
    monkeypatch.setattr(image_search, 'MOST_SHARED', 2)
    for _ in range(5):
        glance.add(DATA, name='gzip', vendor='10ee', visibility='shared')
    wanted = {'image': {'bitstream_name': 'gzip'}, 'vendor': '8086', 'project_id': 'mine'}
    assert refusal(made(), **wanted) == (
        'Image named gzip is not loaded: Glance has no active image whose name or bs-name has this '
        'value and that is public, owned by project mine or accepted by it. Of those that other '
        'projects share, 3 do not match the deployable.'
    )
    assert len(asked_for_members(glance)) == 2


def test_a_foreign_image_is_refused_by_its_id_too(made, glance):
    name = glance.add(DATA, status='deactivated')
    assert refusal(made(), **by_id(name), project_id='mine') == (
        f'Image {name} is not loaded: project mine cannot see it.'
    )
    assert downloads(glance) == 0


def test_a_search_that_glance_does_not_accept_is_said(made, glance):
    glance.refuses = 400
    assert 'does not accept the query' in refusal(made(), image={'function_name': '\U0001f600'})


def test_an_image_of_servers_says_what_they_need(made, glance):
    bitstreams = made()
    for key in ('bitstream_id', 'bitstream_name', 'function_id', 'function_name'):
        name = glance.add(b'a disk', **{f'accel:{key}': 'x'})
        assert bitstreams.vm_image_request(name, 'admin') == {key: 'x'}
    assert bitstreams.vm_image_request(glance.add(b'a disk'), 'admin') == {}
    assert bitstreams.vm_image_request(str(uuid.uuid4()), 'admin') == {}
    with pytest.raises(errors.ImageRefused, match='cannot see it'):
        bitstreams.vm_image_request(name, 'mine')
    both = glance.add(b'a disk', **{'accel:function_id': 'x', 'accel:bitstream_id': 'y'})
    with pytest.raises(errors.ImageRefused, match='accel:bitstream_id, accel:function_id; only'):
        bitstreams.vm_image_request(both, 'admin')
    with pytest.raises(errors.ImageRefused, match='not a UUID'):
        bitstreams.vm_image_request('../x', 'admin')


# Fetching


@pytest.mark.parametrize(
    ('facts', 'why'),
    [
        ({'os_hash_value': hashlib.sha512(b'other').hexdigest()}, 'does not match its sha512 hash'),
        ({'os_hash_value': None}, 'has no os_hash_value'),
        ({'os_hash_value': '../../etc/passwd'}, 'is not a hash'),
        ({'os_hash_algo': 'md5'}, 'md5, is too weak'),
        ({'os_hash_algo': 'shake_128'}, 'shake_128, is too weak or not known'),
        ({'size': len(DATA) + 1}, f'is not {len(DATA) + 1} bytes long'),
        ({'size': len(DATA) - 1}, f'is not {len(DATA) - 1} bytes long'),
        ({'size': MIB + 1}, 'max_bitstream_size allows 1 to 1048576'),
        ({'size': 0}, 'it has 0 bytes'),
        ({'status': 'queued'}, 'it is queued, not active'),
    ],
)
@pytest.mark.parametrize('cache', [0, 1])
def test_an_image_that_is_not_what_glance_says_is_refused(made, glance, state, cache, facts, why):
    name = glance.add(DATA, **facts)
    assert why in refusal(made(max_bitstream_size=1, bitstream_cache_size=cache), **by_id(name))
    assert files(state) == []


@pytest.mark.parametrize(
    ('status', 'kind', 'sentence'),
    [
        (401, errors.Unavailable, 'does not accept the credentials'),
        (404, errors.ImageRefused, 'Glance does not have it, or does not show it'),
        (503, errors.Unavailable, 'Glance answered 503'),
    ],
)
def test_a_glance_that_refuses_is_an_error(made, glance, state, status, kind, sentence):
    name = glance.add(DATA)
    glance.refuses = status
    with pytest.raises(kind, match=sentence):
        fetch(made(), **by_id(name))
    assert files(state) == []


def test_an_image_that_breaks_off_leaves_nothing_behind(made, glance, state):
    name = glance.add(DATA * 100)
    bitstreams = made(bitstream_cache_size=10)
    glance.breaks_off = True
    with pytest.raises(errors.Unavailable, match='connection to Glance broke'):
        fetch(bitstreams, **by_id(name))
    assert files(state) == []
    glance.breaks_off = False
    assert fetch(bitstreams, **by_id(name)) == (name, DATA * 100)


def test_what_fails_while_an_image_is_used_is_not_taken_for_a_failure_to_fetch_it(
    made, glance, state
):
    wanted = WantedImage({'bitstream_id': glance.add(DATA)})
    with pytest.raises(PermissionError), made().fetched(wanted):
        raise PermissionError(1, 'the card')
    assert files(state) == []


@pytest.mark.parametrize('cache', [0, 10])
def test_a_glance_that_sends_a_byte_a_minute_is_given_up(conf, glance, state, cache):
    conf.set_override('bitstream_cache_size', cache, 'agent')
    conf.set_override('program_timeout', 600, 'agent')
    name, minutes = glance.add(bytes(200)), itertools.count()
    glance.byte_pause = 0.01  # a minute by the clock of the agent
    bitstreams = Bitstreams(
        conf, 'compute1', Glance.connect(conf), clock=lambda: 60 * next(minutes)
    )
    with pytest.raises(errors.Unavailable) as caught:
        fetch(bitstreams, **by_id(name))
    assert caught.value.faultstring == (
        f'Image {name} was not fetched within 600 seconds ([agent] program_timeout): Glance is '
        'too slow.'
    )
    assert files(state) == []
    # and the next attempt has its own time
    glance.byte_pause = 0
    assert fetch(bitstreams, **by_id(name)) == (name, bytes(200))


@pytest.mark.parametrize(('key', 'calls'), [('bitstream_name', 3), ('bitstream_id', 1)])
def test_a_search_that_takes_too_long_is_given_up(conf, glance, key, calls):
    conf.set_override('program_timeout', 600, 'agent')
    names = [glance.add(DATA, name='gzip', visibility='shared') for _ in range(2)]
    value, label = {
        'bitstream_name': ('gzip', 'named gzip'),
        'bitstream_id': (names[0], names[0]),
    }[key]
    bitstreams = Bitstreams(
        conf,
        'compute1',
        Glance.connect(conf),
        clock=lambda: 601 if len(glance.requests) >= calls else 0,
    )
    with pytest.raises(errors.Unavailable) as caught:
        fetch(bitstreams, image={key: value}, project_id='mine')
    assert caught.value.faultstring == (
        f'Image {label} was not found within 600 seconds ([agent] program_timeout): Glance is '
        'too slow.'
    )
    assert len(glance.requests) == calls


def test_a_weak_hash_is_refused_where_it_cannot_be_computed(made, glance, monkeypatch):
    """In FIPS mode, hashlib.new() raises ValueError for md5."""
    known = hashlib.new

    def new(name, *arguments, **options):
        if name == 'md5':
            raise ValueError('unsupported hash type md5')
        return known(name, *arguments, **options)

    monkeypatch.setattr(hashlib, 'new', new)
    name = glance.add(DATA, os_hash_algo='md5')
    assert 'md5, is too weak' in refusal(made(), **by_id(name))


def test_a_search_is_given_up_between_two_pages(conf, glance):
    for _ in range(200):
        glance.add(DATA, name='gzip', visibility='community', owner='others')
    bitstreams = Bitstreams(
        conf,
        'compute1',
        Glance.connect(conf),
        clock=lambda: 10_000 if len(glance.requests) >= 2 else 0,
    )
    with pytest.raises(errors.Unavailable, match='Image named gzip was not found within'):
        fetch(bitstreams, image={'bitstream_name': 'gzip'}, project_id='mine')
    assert len(glance.requests) == 2


def test_progress_is_told_now_and_then(conf, glance, state):
    name, told = glance.add(b'x' * 8 * MIB), []

    def clock():
        """Half a second passes with each MiB."""
        return sum(path.stat().st_size for path in state.iterdir()) / (2 * MIB)

    bitstreams = Bitstreams(conf, 'compute1', Glance.connect(conf), clock=clock)
    fetch(bitstreams, progress=told.append, **by_id(name))
    assert told[0] == f'Fetching image {name} (8388608 bytes).'
    assert 1 < len(told) < 8
    assert all(each.startswith('Fetched ') and each.endswith(' %.') for each in told[1:])


def test_who_is_told_can_call_it_off(made, glance, state):
    def tell(sentence):
        raise errors.Conflict('called off')

    with pytest.raises(errors.Conflict):
        fetch(made(), progress=tell, **by_id(glance.add(DATA)))
    assert files(state) == []


FULL = """\
import errno, os, pathlib, subprocess, sys
from oslo_config import cfg
from cyborg import conf as options, errors
from cyborg.agent import image_search
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.clients.glance import Glance
file, name, other = sys.argv[1:]
conf = cfg.ConfigOpts()
options.register(conf)
conf(['--config-file', file])
subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=5m', 'tmpfs', conf.state_path], check=True)
conf.set_override('bitstream_cache_size', 100, 'agent')
bitstreams = Bitstreams(conf, 'compute1', Glance.connect(conf))
with bitstreams.fetched(WantedImage({'bitstream_id': other})):
    pass
assert any(path.is_file() for path in pathlib.Path(conf.state_path).rglob('*'))
try:
    with bitstreams.fetched(WantedImage({'bitstream_id': name})):
        pass
except errors.ImageRefused as error:
    print(error.faultstring)
print([str(path) for path in pathlib.Path(conf.state_path).rglob('*') if path.is_file()])
# the cache makes room for what would fit without it
with bitstreams.fetched(WantedImage({'bitstream_id': other})):
    print('fits')
"""


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(conf, glance, state, tmp_path):
    if (
        not shutil.which('unshare')
        or subprocess.run([*ENTER, 'true'], capture_output=True).returncode
    ):
        pytest.skip('no namespace for a small file system')
    name, other = glance.add(b'x' * 8 * MIB), glance.add(b'y' * 3 * MIB)
    with (tmp_path / 'cyborg.conf').open('a') as file:
        file.write(f'[DEFAULT]\nstate_path = {state}\n')
    told = subprocess.run(
        [*ENTER, sys.executable, '-c', FULL, str(tmp_path / 'cyborg.conf'), name, other],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.splitlines() == [
        f'Image {name} is not loaded: it cannot be stored on the host: No space left on device.',
        '[]',
        'fits',
    ], told.stderr


# The cache


def test_an_image_that_is_in_the_cache_is_not_fetched_again(made, glance, state):
    name, told = glance.add(DATA), []
    bitstreams = made(bitstream_cache_size=1)
    assert fetch(bitstreams, **by_id(name)) == (name, DATA)
    assert fetch(bitstreams, progress=told.append, **by_id(name)) == (name, DATA)
    # another agent, another image with the same data
    again = glance.add(DATA)
    assert fetch(made(), **by_id(again)) == (again, DATA)
    assert downloads(glance) == 1
    assert told == [f'Checking image {name}, which is in the cache.']
    assert files(state) == [f'images-compute1/sha512-{hashlib.sha512(DATA).hexdigest()}']
    assert (state / 'images-compute1').stat().st_mode & 0o777 == 0o700


def test_the_cache_gives_nothing_to_whom_glance_would_not(made, glance):
    name = glance.add(DATA)
    bitstreams = made(bitstream_cache_size=1)
    fetch(bitstreams, **by_id(name))
    assert 'cannot see it' in refusal(bitstreams, **by_id(name), project_id='mine')
    glance.images[name]['status'] = 'deactivated'
    assert 'deactivated' in refusal(bitstreams, **by_id(name))


@pytest.mark.parametrize('wrong', [b'', DATA[:-1], DATA + b'!', b'?' + DATA[1:]])
def test_a_cache_with_wrong_data_is_mended(made, glance, state, wrong):
    name = glance.add(DATA)
    bitstreams = made(bitstream_cache_size=1)
    fetch(bitstreams, **by_id(name))
    [entry] = files(state)
    (state / entry).write_bytes(wrong)
    assert fetch(bitstreams, **by_id(name)) == (name, DATA)
    assert downloads(glance) == 2
    assert (state / entry).read_bytes() == DATA
    assert files(state) == [entry]


def test_the_least_recently_used_image_leaves_the_cache_first(made, glance, state):
    first, second, third = (glance.add(each * MIB) for each in (b'1', b'2', b'3'))
    bitstreams = made(bitstream_cache_size=2)
    for name in (first, second, first, third, first):
        fetch(bitstreams, **by_id(name))
        assert sum((state / each).stat().st_size for each in files(state)) <= 2 * MIB
        time.sleep(0.02)
    assert downloads(glance) == 3
    fetch(bitstreams, **by_id(second))
    assert downloads(glance) == 4


def test_an_image_larger_than_the_cache_is_used_and_not_kept(made, glance, state):
    small, large = glance.add(DATA), glance.add(b'x' * 2 * MIB)
    bitstreams = made(bitstream_cache_size=1)
    fetch(bitstreams, **by_id(small))
    kept = files(state)
    assert fetch(bitstreams, **by_id(large)) == (large, b'x' * 2 * MIB)
    assert files(state) == kept


def test_an_image_in_use_stays_when_it_leaves_the_cache(made, glance, state):
    first, second = glance.add(b'1' * MIB), glance.add(b'2' * MIB)
    bitstreams = made(bitstream_cache_size=1)
    fetch(bitstreams, **by_id(first))
    with bitstreams.fetched(WantedImage({'bitstream_id': first})) as fetched:
        fetch(bitstreams, **by_id(second))
        assert hashlib.sha512(b'1' * MIB).hexdigest() not in str(files(state))
        assert fetched.path.read_bytes() == b'1' * MIB
    assert len(files(state)) == 1


def test_threads_that_want_one_image_fetch_it_once(made, glance, state):
    name, failed = glance.add(b'x' * 3 * MIB), []
    bitstreams = made(bitstream_cache_size=10)
    glance.goes_on.clear()

    def run():
        try:
            assert fetch(bitstreams, **by_id(name)) == (name, b'x' * 3 * MIB)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    glance.goes_on.set()
    for thread in threads:
        thread.join()
    assert (failed, downloads(glance), len(files(state))) == ([], 1, 1)


def test_a_card_does_not_wait_for_an_image_of_another_beyond_its_own_time(made, glance):
    name, is_fetching, goes_on = glance.add(DATA), threading.Event(), threading.Event()
    bitstreams = made(bitstream_cache_size=1)

    def pause(sentence):
        is_fetching.set()
        goes_on.wait(60)

    first = threading.Thread(target=fetch, args=(bitstreams, pause), kwargs=by_id(name))
    first.start()
    assert is_fetching.wait(30)
    bitstreams._timeout = 1
    with pytest.raises(errors.Unavailable, match='Another card .* the same image for 1 seconds'):
        fetch(bitstreams, **by_id(name))
    goes_on.set()
    first.join()
    assert fetch(bitstreams, **by_id(name)) == (name, DATA)


def test_threads_and_evictions_do_not_disturb_one_another(made, glance, state):
    images = {glance.add(bytes([each]) * MIB): bytes([each]) * MIB for each in range(4)}
    bitstreams, failed = made(bitstream_cache_size=2), []

    def run(name):
        try:
            for _ in range(10):
                assert fetch(bitstreams, **by_id(name)) == (name, images[name])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in [*images, *images]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sum((state / each).stat().st_size for each in files(state)) <= 2 * MIB


KILLED = """\
import os, signal, sys
from oslo_config import cfg
from cyborg import conf as options
from cyborg.agent import image_search
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.clients.glance import Glance
conf = cfg.ConfigOpts()
options.register(conf)
conf(['--config-file', sys.argv[1]])
conf.set_override('bitstream_cache_size', 10, 'agent')
conf.set_override('state_path', sys.argv[2])
deadly, reached = int(sys.argv[4]), set()
def trace(frame, event, argument):
    # Each line of our own code counts once: loops run as often as data arrives.
    if 'cyborg/agent/' not in frame.f_code.co_filename:
        return None
    if event == 'line':
        reached.add((frame.f_code.co_filename, frame.f_lineno))
        if len(reached) == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace
bitstreams = Bitstreams(conf, 'compute1', Glance.connect(conf))
sys.settrace(trace)
with bitstreams.fetched(WantedImage({'bitstream_id': sys.argv[3]})):
    pass
sys.settrace(None)
print(len(reached))
"""


@pytest.mark.parametrize('sixth', range(7))
def test_an_agent_can_be_killed_at_any_moment(made, glance, state, tmp_path, sixth):
    def run(directory, line):
        return subprocess.run(
            [
                *(sys.executable, '-c', KILLED, str(tmp_path / 'cyborg.conf')),
                *(str(directory), name, str(line)),
            ],
            check=False,
            stdout=subprocess.PIPE,
        )

    name = glance.add(DATA)
    undisturbed = run(tmp_path / 'undisturbed', 0)
    lines = int(undisturbed.stdout)
    assert lines > 100
    killed = run(state, 1 + sixth * (lines - 1) // 6)
    assert killed.returncode == -signal.SIGKILL
    bitstreams = made(bitstream_cache_size=10)
    assert all('bitstream-' not in each for each in files(state))
    assert fetch(bitstreams, **by_id(name)) == (name, DATA)
    assert files(state) == [f'images-compute1/sha512-{hashlib.sha512(DATA).hexdigest()}']


def test_a_smaller_cache_or_none_gives_its_space_back(made, glance, state):
    for each in (b'1', b'2', b'3'):
        fetch(made(bitstream_cache_size=3), **by_id(glance.add(each * MIB)))
    (state / 'images-compute1' / 'bitstream-compute1-abc').write_bytes(b'left over')
    assert len(files(state)) == 4
    made(bitstream_cache_size=1)
    assert len(files(state)) == 1
    made(bitstream_cache_size=0)
    assert files(state) == []


def test_a_cache_that_cannot_be_made_is_a_mistake_in_the_configuration(conf, made, tmp_path):
    (tmp_path / 'file').touch()
    conf.set_override('state_path', str(tmp_path / 'file'))
    with pytest.raises(errors.ConfigError, match='bitstream_cache_size is set, but .* directory'):
        made(bitstream_cache_size=1)


@pytest.mark.parametrize('call', ['link', 'utime'])
def test_a_cache_that_fails_is_done_without(made, glance, state, monkeypatch, call):
    def fail(*args, **kwargs):
        raise PermissionError(1, 'Operation not permitted')

    name = glance.add(DATA)
    bitstreams = made(bitstream_cache_size=1)
    monkeypatch.setattr(os, call, fail)
    for _ in range(2):
        assert fetch(bitstreams, **by_id(name)) == (name, DATA)
    assert downloads(glance) == 2


# Who may be loaded


def test_only_allowed_digests_are_loaded(made, glance, state):
    good, bad = glance.add(DATA), glance.add(b'other')
    for algorithm in ('sha256', 'sha512'):
        bitstreams = made(
            bitstream_cache_size=1,
            allowed_bitstream_digests=[
                f'{algorithm}:{hashlib.new(algorithm, DATA).hexdigest().upper()}'
            ],
        )
        assert fetch(bitstreams, **by_id(good)) == (good, DATA)
        assert 'allowed_bitstream_digests of the host does not list its digest' in refusal(
            bitstreams, **by_id(bad)
        )
    assert downloads(glance) == 2  # the sha512 of an image is known beforehand
    assert len(files(state)) == 1


@pytest.mark.parametrize('entry', ['sha256:abc', 'abc', 'md5:' + '0' * 32, 'sha256:' + 'x' * 64])
def test_a_digest_that_is_none_is_a_mistake_in_the_configuration(made, entry):
    with pytest.raises(errors.ConfigError, match='allowed_bitstream_digests: '):
        made(allowed_bitstream_digests=[entry])


@pytest.fixture
def signed(made, glance):
    """A key manager, and agents who want signatures."""
    pytest.importorskip('cursive')
    from castellan import key_manager

    from tests.fixtures import images

    cfg.CONF.register_opts(key_manager.key_manager_opts, group='key_manager')
    cfg.CONF.set_override('backend', 'tests.fixtures.images.KeyManager', 'key_manager')
    root, other = images.Signer('root'), images.Signer('other')
    signer = images.Signer('signer', root)
    images.KeyManager.certificates = {
        'root': root.certificate,
        'other': other.certificate,
        'signer': signer.certificate,
    }
    images.KeyManager.askers = []
    yield signer, other, lambda **options: made(verify_bitstream_signatures=True, **options)
    cfg.CONF.clear_override('backend', 'key_manager')


def test_a_signed_image_is_loaded_and_others_are_not(signed, glance, state):
    from tests.fixtures.images import KeyManager

    signer, other, agent = signed
    good = glance.add(DATA, **signer.sign(DATA, 'signer'))
    bitstreams = agent(bitstream_cache_size=1)
    assert fetch(bitstreams, **by_id(good)) == (good, DATA)
    assert fetch(bitstreams, **by_id(good)) == (good, DATA)
    assert KeyManager.askers == [bitstreams._glance.auth] * 2
    kept = files(state)
    for facts, why in [
        ({}, 'it is not signed: it has no img_signature_certificate_uuid'),
        (signer.sign(DATA, 'signer') | {'img_signature': None}, 'has no img_signature.'),
        (signer.sign(b'other', 'signer'), 'its data does not match its signature'),
        (other.sign(DATA, 'signer'), 'its data does not match its signature'),
        (signer.sign(DATA, 'gone'), 'its signature cannot be checked'),
        (signer.sign(DATA, 'signer') | {'img_signature_key_type': 'X'}, 'cannot be checked'),
        (signer.sign(DATA, 'signer') | {'img_signature': '!'}, 'cannot be checked'),
    ]:
        # in the cache and not
        assert why in refusal(bitstreams, **by_id(glance.add(DATA, **facts)))
        assert why in refusal(agent(bitstream_cache_size=0), **by_id(glance.add(DATA, **facts)))
        bitstreams = agent(bitstream_cache_size=1)
        fetch(bitstreams, **by_id(good))
    assert files(state) == kept


@pytest.mark.filterwarnings('ignore:Properties that return a na.ve datetime')
@pytest.mark.parametrize('trusted', [[], ['root']])
def test_a_key_manager_that_fails_is_asked_again(signed, glance, monkeypatch, trusted):
    from castellan.common.exception import Forbidden, KeyManagerError

    from tests.fixtures.images import KeyManager

    signer, _, agent = signed
    good = glance.add(DATA, **signer.sign(DATA, 'signer'))
    bitstreams = agent(trusted_bitstream_certificates=trusted)
    for failure in (
        KeyManagerError(reason='503'),
        Forbidden(),
        ConnectFailure('refused'),
        ConnectionResetError('reset'),
    ):

        def fail(*arguments, failure=failure):
            raise failure

        with monkeypatch.context() as failing:
            failing.setattr(KeyManager, 'get', fail)
            with pytest.raises(errors.Unavailable, match='key manager does not give the certif'):
                fetch(bitstreams, **by_id(good))
        assert fetch(bitstreams, **by_id(good)) == (good, DATA)


@pytest.mark.parametrize('size', [0, 1], ids=['no cache', 'cache'])
def test_a_key_manager_that_does_not_answer_is_not_waited_for(signed, glance, monkeypatch, size):
    from tests.fixtures.images import KeyManager

    signer, _, agent = signed
    good = glance.add(DATA, **signer.sign(DATA, 'signer'))
    answers, usual = threading.Event(), KeyManager.get

    def wait(*arguments):
        answers.wait(60)
        return usual(*arguments)

    monkeypatch.setattr(KeyManager, 'get', wait)
    monkeypatch.setattr(signatures, 'MOST_UNANSWERED', 2)
    bitstreams = agent(bitstream_cache_size=size, program_timeout=1)
    # as many times as there are threads for such questions, and once more
    for _ in range(3):
        with pytest.raises(errors.Unavailable, match=f'{good}: it has not answered within 1 sec'):
            fetch(bitstreams, **by_id(good))
    assert sum('key manager' in thread.name for thread in threading.enumerate()) == 2
    # when it answers after all
    answers.set()
    assert fetch(bitstreams, **by_id(good)) == (good, DATA)


# what cryptography says to cursive before 0.3
@pytest.mark.filterwarnings('ignore:Properties that return a na.ve datetime')
def test_only_certificates_that_are_trusted_count(signed, glance):
    signer, other, agent = signed
    good = glance.add(DATA, **signer.sign(DATA, 'signer'))
    bad = glance.add(DATA, **other.sign(DATA, 'other'))
    assert fetch(agent(), **by_id(bad)) == (bad, DATA)
    bitstreams = agent(trusted_bitstream_certificates=['root'])
    assert fetch(bitstreams, **by_id(good)) == (good, DATA)
    assert 'certificate is not trusted' in refusal(bitstreams, **by_id(bad))


def test_without_cursive_signatures_are_a_mistake_in_the_configuration(made, monkeypatch):
    monkeypatch.setitem(sys.modules, 'cursive', None)
    with pytest.raises(errors.ConfigError, match=r'install cursive and castellan'):
        made(verify_bitstream_signatures=True)
