# SPDX-License-Identifier: Apache-2.0
"""Device profiles that say what an FPGA is to do: a bind programs its region, or says why not.

Seen through the API alone: requests, deployables, Placement, Nova's events, and how often the
tool of the card was called.
"""

import re
import tempfile
import threading
import uuid
from pathlib import Path
from typing import ClassVar

import pytest

from cyborg import errors
from cyborg.accelerator import pci
from cyborg.agent import hotplug
from cyborg.conductor.engine import tasks
from cyborg.sim.fpga import SYNC
from tests.fixtures.agents import Agents
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.fpga import ADDRESS, FIRST_FUNCTION, FUNCTION, REGION_TYPE, FpgaHost, gbs
from tests.fixtures.hosts import SimHost
from tests.fixtures.servers import Failed, Server
from tests.fixtures.threads import in_thread

REGION = f'{ADDRESS}_region0'
SECOND = '0000:af:00.0'  #: the slot of another card
FPGA = {'resources:FPGA': '1'}
NAME, FUNCTION_NAME = 'gzip_v1.gbs', 'gzip'
TOGETHER = 6
UNKNOWN = 'b8d2c1a0-4c0f-4f37-9d0e-7a5f3f0f6c11'  #: no image, function or region has this
KEYS = ['bitstream_id', 'bitstream_name', 'function_id', 'function_name']


@pytest.fixture
def cloud(request, tmp_path):
    made = Cloud(
        tmp_path,
        more='[conductor]\nsweep_interval = 1\n'
        '[agent]\nresync_interval = 1\n' + getattr(request, 'param', ''),
    )
    made.start()
    yield made
    for host in made.hosts.values():
        if isinstance(host, FpgaHost):
            host.goes_on.set()
    made.glance.goes_on.set()
    made.stop()


NO_WAIT = '[api]\nbind_wait = 0\n'
no_wait = pytest.mark.parametrize('cloud', [NO_WAIT], indirect=True, ids=['no wait'])
short_of_time = pytest.mark.parametrize(
    'cloud',
    [f'{NO_WAIT}[conductor]\nbind_timeout = 1\nprogram_timeout = 1\n'],
    indirect=True,
    ids=['2 s'],
)


@pytest.fixture
def agents(cloud, monkeypatch):
    return Agents(cloud, monkeypatch)


@pytest.fixture
def host(cloud, agents):
    cloud.profile('any', FPGA)
    return agents.host(make=FpgaHost)


@pytest.fixture
def image(cloud):
    return add_image(cloud)


@pytest.fixture
def gzip(cloud, image):
    """A profile that names an image."""
    cloud.profile('gzip', FPGA | {'accel:bitstream_id': image})
    return 'gzip'


def add_image(cloud, function=FUNCTION, **facts):
    """An image that everybody may use, described as operators describe them."""
    return cloud.glance.add(
        gbs(function),
        **{
            'name': NAME,
            'function_uuid': function,
            'function_name': FUNCTION_NAME,
            'region_uuid': REGION_TYPE,
            'visibility': 'public',
        }
        | facts,
    )


def wanted(key, image):
    return {
        'bitstream_id': image,
        'bitstream_name': NAME,
        'function_id': FUNCTION,
        'function_name': FUNCTION_NAME,
    }[key]


def region(cloud, host='compute1'):
    [found] = cloud.get(f'/deployables?name={host}_{REGION}')['deployables']
    return found


def published(cloud, host='compute1'):
    return cloud.providers(host)[f'{host}_{REGION}']


def trait(function):
    return f'CUSTOM_FPGA_INTEL_FUNCTION_{function.upper().replace("-", "_")}'


def is_free(cloud, host='compute1'):
    """Could the scheduler choose the region now?"""
    return published(cloud, host)['inventories']['FPGA']['reserved'] == 0


def shown(cloud, arq):
    return cloud.get(f'/accelerator_requests/{arq["uuid"]}')


def history(cloud, arq):
    return cloud.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']


def bind(cloud, profile, **options):
    """Make a request and bind it; returns both the request and the answer."""
    [arq] = cloud.request(profile)
    return arq, cloud.bind(arq, **options)


def bound(cloud, profile, **options):
    """A request that is bound when this returns."""
    arq, answer = bind(cloud, profile, **options)
    assert answer.status_code == 202, answer.text
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    return arq


def delete(cloud, arq):
    answer = cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    assert answer.status_code == 204, answer.text


def program(cloud, image, uuid=None):
    """What an operator does."""
    return cloud.call(
        'PATCH',
        f'/deployables/{uuid or region(cloud)["uuid"]}/program',
        json=[{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}],
    )


def statuses(cloud, arq):
    """What Nova has heard of a request."""
    return [event['status'] for event in cloud.nova.events() if event['tag'] == arq['uuid']]


def require_failed(cloud, arq, answer, *sentences):
    """A bind failed with these sentences, and nothing is held."""
    assert answer.status_code == 409, answer.text
    for sentence in sentences:
        assert re.search(sentence, answer.text), answer.text
    failed = shown(cloud, arq)
    assert (failed['state'], failed['instance_uuid'], failed['attach_handle_uuid']) == (
        'BindFailed',
        None,
        None,
    )
    assert failed['attach_handle_info'] == {}
    last = history(cloud, arq)[-1]
    assert last['to_state'] == 'BindFailed'
    for sentence in sentences:
        assert re.search(sentence, last['reason']), last['reason']
    eventually(lambda: statuses(cloud, arq) == ['failed'])
    require_free(cloud)


def require_free(cloud, host='compute1'):
    """Nobody has the region, nothing is done to it, and it can be had."""
    eventually(lambda: is_free(cloud, host))
    arq = bound(cloud, 'any', host=host, rp=cloud.rp(host))
    delete(cloud, arq)


# -- a bind programs -------------------------------------------------------------------------


@pytest.mark.parametrize('key', KEYS)
def test_a_region_is_programmed_before_its_request_is_bound(cloud, host, image, key):
    cloud.profile('gzip', FPGA | {f'accel:{key}': wanted(key, image)})
    # when the request is bound
    arq, answer = bind(cloud, 'gzip')
    assert answer.status_code == 202, answer.text
    # then its region does what was asked for
    found = shown(cloud, arq)
    assert (found['state'], found['attach_handle_type']) == ('Bound', 'PCI')
    assert found['attach_handle_info'] == {
        'domain': '0000',
        'bus': '5e',
        'device': '00',
        'function': '0',
    }
    assert len(host.loaded) == 1
    shape = region(cloud)
    assert (shape['bitstream_id'], shape['program_error']) == (image, None)
    # and everybody can see it
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    assert trait(FIRST_FUNCTION) not in published(cloud)['traits']
    assert region(cloud)['bitstream_id'] == image
    eventually(lambda: statuses(cloud, arq) == ['completed'])


@pytest.mark.parametrize('name', ['function_uuid', 'accel:function_id'])
def test_an_image_says_what_it_does_in_either_of_two_ways(cloud, host, name):
    image = cloud.glance.add(gbs(), visibility='public', **{name: FUNCTION})
    cloud.profile('gzip', FPGA | {'accel:function_id': FUNCTION})
    bound(cloud, 'gzip')
    assert region(cloud)['bitstream_id'] == image


@pytest.mark.parametrize('key', ['bitstream_id', 'function_id'])
def test_an_id_may_be_written_in_capitals(cloud, host, image, key):
    cloud.profile('gzip', FPGA | {f'accel:{key}': wanted(key, image).upper()})
    delete(cloud, bound(cloud, 'gzip'))
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    bound(cloud, 'gzip')
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


@no_wait
def test_a_request_is_not_bound_while_its_region_is_being_programmed(cloud, host, image, gzip):
    host.goes_on.clear()
    arq, answer = bind(cloud, gzip)
    assert answer.status_code == 202
    assert host.is_loading.wait(PATIENCE)
    assert shown(cloud, arq)['state'] == 'BindStarted'
    assert statuses(cloud, arq) == []
    host.goes_on.set()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    eventually(lambda: statuses(cloud, arq) == ['completed'])
    assert region(cloud)['bitstream_id'] == image


def test_a_profile_that_names_no_image_leaves_the_region_as_it_is(cloud, host, image):
    assert program(cloud, image).status_code == 200
    bound(cloud, 'any')
    assert region(cloud)['bitstream_id'] == image
    assert len(host.loaded) == 1


def test_the_data_of_an_image_that_comes_slowly_is_waited_for(cloud, host, image, gzip):
    cloud.glance.goes_on.clear()
    [arq] = cloud.request(gzip)
    answer = in_thread(cloud.bind, arq)
    eventually(lambda: shown(cloud, arq)['state'] == 'BindStarted')
    cloud.glance.goes_on.set()
    assert answer().status_code == 202
    assert region(cloud)['bitstream_id'] == image


def test_the_history_of_a_request_shows_its_progress(cloud, host, image, gzip):
    arq = bound(cloud, gzip)
    steps = history(cloud, arq)
    events = [step['event'] for step in steps]
    assert events[:2] == ['create', 'bind'] and events[-1] == 'attached'
    # the image comes first, then what guests get
    kinds = [event for event in events if event in ('program', 'prepare')]
    assert kinds[0] == 'program' and kinds == sorted(kinds, reverse=True)
    told = next(step for step in steps if step['event'] == 'program')
    assert (told['from_state'], told['to_state']) == ('BindStarted', 'BindStarted')
    assert image in told['reason']


# -- what is loaded already ------------------------------------------------------------------


@pytest.mark.parametrize('first', ['bitstream_id', 'function_name'])
@pytest.mark.parametrize('second', KEYS)
def test_what_is_loaded_already_is_not_loaded_again(cloud, host, image, first, second):
    cloud.profile('first', FPGA | {f'accel:{first}': wanted(first, image)})
    cloud.profile('second', FPGA | {f'accel:{second}': wanted(second, image)})
    delete(cloud, bound(cloud, 'first'))
    # when the region shows what it does
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    bound(cloud, 'second')
    assert len(host.loaded) == 1
    assert region(cloud)['bitstream_id'] == image


def test_what_an_operator_loaded_is_not_loaded_again(cloud, host, image, gzip):
    assert program(cloud, image).status_code == 200
    bound(cloud, gzip)
    assert len(host.loaded) == 1


def test_a_function_that_the_card_shows_is_not_loaded_though_no_image_is_known(cloud, host):
    cloud.profile('first', FPGA | {'accel:function_id': FIRST_FUNCTION})
    bound(cloud, 'first')
    assert host.loaded == []


def test_an_image_that_somebody_else_replaced_is_loaded_again(cloud, host, image, gzip):
    delete(cloud, bound(cloud, gzip))
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    host.program(ADDRESS, 0, FIRST_FUNCTION)
    eventually(lambda: region(cloud)['bitstream_id'] is None)
    bound(cloud, gzip)
    assert len(host.loaded) == 2
    assert region(cloud)['bitstream_id'] == image


# -- several who want one region -------------------------------------------------------------


def test_another_request_does_not_change_what_a_bound_region_does(cloud, host, image, gzip):
    other = add_image(cloud, FIRST_FUNCTION)
    cloud.profile('other', FPGA | {'accel:bitstream_id': other})
    holder, rp = bound(cloud, gzip), cloud.rp()
    # given a request for the same region and another image
    arq, answer = bind(cloud, 'other', rp=rp)
    assert answer.status_code == 409
    assert 'no free attach handle' in answer.text
    assert shown(cloud, arq)['state'] == 'Initial'
    assert shown(cloud, holder)['state'] == 'Bound'
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)
    # when the first is gone the second gets it, programmed
    delete(cloud, holder)
    assert cloud.bind(arq, rp=rp).status_code == 202
    assert shown(cloud, arq)['state'] == 'Bound'
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, other)


@no_wait
def test_requests_that_are_bound_at_once_have_one_winner(cloud, host, image, gzip):
    arqs, rp = [cloud.request(gzip)[0] for _ in range(TOGETHER)], cloud.rp()
    start = threading.Barrier(TOGETHER)

    def race(arq):
        start.wait()
        return cloud.bind(arq, rp=rp).status_code

    answers = [end() for end in [in_thread(race, arq) for arq in arqs]]
    assert sorted(answers) == [202] + [409] * (TOGETHER - 1)
    winner = arqs[answers.index(202)]
    eventually(lambda: shown(cloud, winner)['state'] == 'Bound')
    assert {shown(cloud, arq)['state'] for arq in arqs if arq is not winner} == {'Initial'}
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


# -- what fails ------------------------------------------------------------------------------


def test_a_tool_that_fails_fails_the_bind_in_its_own_words(cloud, host, image, gzip):
    host.is_broken = True
    arq, answer = bind(cloud, gzip)
    assert 'The card does not answer' in region(cloud)['program_error']
    host.is_broken = False
    require_failed(cloud, arq, answer, 'The card does not answer')
    # nobody knows what is in it now
    assert region(cloud)['bitstream_id'] is None
    # and it can be bound again
    loaded = len(host.loaded)
    assert cloud.bind(arq).status_code == 202
    assert shown(cloud, arq)['state'] == 'Bound'
    assert len(host.loaded) == loaded + 1
    assert (region(cloud)['bitstream_id'], region(cloud)['program_error']) == (image, None)


@no_wait
def test_nova_hears_of_a_programming_that_fails_later(cloud, host, image, gzip):
    host.goes_on.clear()
    arq, answer = bind(cloud, gzip)
    assert answer.status_code == 202
    host.is_broken = True
    host.goes_on.set()
    eventually(lambda: statuses(cloud, arq) == ['failed'])
    assert shown(cloud, arq)['state'] == 'BindFailed'
    assert 'The card does not answer' in history(cloud, arq)[-1]['reason']
    host.is_broken = False
    require_free(cloud)


@short_of_time
def test_a_bind_whose_tool_does_not_end_fails_by_its_deadline(cloud, host, image, gzip):
    host.goes_on.clear()
    arq, answer = bind(cloud, gzip)
    assert answer.status_code == 202
    assert host.is_loading.wait(PATIENCE)
    eventually(lambda: shown(cloud, arq)['state'] == 'BindFailed')
    eventually(lambda: statuses(cloud, arq) == ['failed'])
    # nobody gets the region while the tool is busy with it
    second, refused = bind(cloud, 'any')
    assert refused.status_code == 409, refused.text
    host.goes_on.set()
    eventually(lambda: cloud.bind(second).status_code == 202)


REFUSED = {
    'its data is not what it should be': ({'os_hash_value': '0' * 128}, 'hash'),
    'it is not there yet': ({'status': 'queued'}, 'queued'),
    'it is for a card of others': ({'vendor': '10ee'}, 'vendor'),
    'it is for another region': ({'region_uuid': FUNCTION}, 'region_uuid'),
}


@pytest.mark.parametrize('facts, sentence', REFUSED.values(), ids=REFUSED)
def test_an_image_that_cannot_be_trusted_never_reaches_the_card(
    cloud, host, image, gzip, facts, sentence
):
    delete(cloud, bound(cloud, gzip))
    bad = add_image(cloud, FIRST_FUNCTION, **facts)
    cloud.profile('bad', FPGA | {'accel:bitstream_id': bad})
    arq, answer = bind(cloud, 'bad')
    require_failed(cloud, arq, answer, bad, sentence)
    # what the region does is what it did
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


@pytest.mark.parametrize(
    'key, value',
    [
        ('bitstream_id', UNKNOWN),
        ('bitstream_name', 'none.gbs'),
        ('function_id', UNKNOWN),
        ('function_name', 'none'),
    ],
)
def test_a_bind_fails_if_there_is_no_image(cloud, host, image, key, value):
    cloud.profile('none', FPGA | {f'accel:{key}': value})
    arq, answer = bind(cloud, 'none')
    require_failed(cloud, arq, answer, value, '[Nn]o .*image|does not have it')
    assert host.loaded == []


@pytest.mark.parametrize('key', KEYS[1:])
def test_a_bind_fails_if_several_images_could_be_meant(cloud, host, image, key):
    other = add_image(cloud)
    cloud.profile('several', FPGA | {f'accel:{key}': wanted(key, image)})
    arq, answer = bind(cloud, 'several')
    require_failed(cloud, arq, answer, wanted(key, image), '(several|2|two) .*images')
    assert host.loaded == []
    # one that is not active any more does not count
    cloud.glance.images[other]['status'] = 'deactivated'
    assert cloud.bind(arq).status_code == 202
    assert region(cloud)['bitstream_id'] == image


@pytest.mark.parametrize('key', KEYS[1:])
@pytest.mark.parametrize(
    'facts',
    [{'region_uuid': UNKNOWN}, {'vendor': '10ee'}, {'visibility': 'private', 'owner': 'other'}],
    ids=['region', 'vendor', 'project'],
)
def test_images_that_do_not_fit_are_not_meant(cloud, host, image, key, facts):
    add_image(cloud, **facts)
    cloud.profile('gzip', FPGA | {f'accel:{key}': wanted(key, image)})
    bound(cloud, 'gzip')
    assert region(cloud)['bitstream_id'] == image


def test_a_deployable_without_its_driver_s_help_is_not_programmed(cloud, image):
    cloud.host('compute1')
    cloud.profile('fake', FPGA | {'accel:bitstream_id': image})
    arq, answer = bind(cloud, 'fake')
    assert answer.status_code == 409
    assert 'fake_driver cannot load images into it' in answer.text
    found = shown(cloud, arq)
    assert found['state'] in ('Initial', 'BindFailed') and not found['attach_handle_uuid']


# -- whose image it is -----------------------------------------------------------------------


@pytest.mark.parametrize('key', ['bitstream_id', 'bitstream_name'])
def test_an_image_of_another_project_is_not_loaded(cloud, host, key):
    image = add_image(cloud, visibility='private', owner='other')
    cloud.profile('gzip', FPGA | {f'accel:{key}': wanted(key, image)})
    arq, answer = bind(cloud, 'gzip')
    require_failed(cloud, arq, answer, wanted(key, image))
    assert host.loaded == []


@pytest.mark.parametrize(
    'facts, members',
    [
        ({'visibility': 'private', 'owner': 'noauth'}, {}),
        ({'visibility': 'shared', 'owner': 'other'}, {'noauth': 'accepted'}),
        ({'visibility': 'community', 'owner': 'other'}, {}),
    ],
    ids=['own', 'shared', 'community'],
)
def test_an_image_that_the_project_of_the_request_sees_is_loaded(cloud, host, facts, members):
    image = add_image(cloud, **facts)
    cloud.glance.members[image] = members
    cloud.profile('gzip', FPGA | {'accel:bitstream_id': image})
    bound(cloud, 'gzip')
    assert region(cloud)['bitstream_id'] == image


@pytest.fixture
def as_project(cloud):
    """Speak for another project from now on."""

    def change(name, user='somebody'):
        cloud.session.headers['X-Auth-Token'] = f'{user}:{name}'

    return change


def test_a_foreign_image_is_not_taken_for_one_of_the_same_name(cloud, host, as_project):
    mine = add_image(cloud, visibility='private', owner='mine')
    other = add_image(cloud, FIRST_FUNCTION, visibility='private', owner='other')
    cloud.profile('gzip', FPGA | {'accel:bitstream_name': NAME})
    as_project('other')
    delete(cloud, bound(cloud, 'gzip'))
    assert region(cloud)['bitstream_id'] == other
    # when another project has an image of that name, and asks for it
    as_project('mine')
    bound(cloud, 'gzip')
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, mine)


def test_a_foreign_image_is_not_had_because_it_is_loaded_already(cloud, host, as_project):
    other = add_image(cloud, visibility='private', owner='other')
    cloud.profile('gzip', FPGA | {'accel:bitstream_id': other})
    as_project('other')
    delete(cloud, bound(cloud, 'gzip'))
    as_project('mine')
    arq, answer = bind(cloud, 'gzip')
    require_failed(cloud, arq, answer, other)
    assert len(host.loaded) == 1


# -- requests that go meanwhile --------------------------------------------------------------


def test_a_request_that_is_deleted_leaves_nothing_behind(cloud, host, image, gzip):
    host.goes_on.clear()
    [arq], rp, server = cloud.request(gzip), cloud.rp(), str(uuid.uuid4())
    answer = in_thread(cloud.bind, arq, rp=rp, instance=server)
    assert host.is_loading.wait(PATIENCE)
    # when it is deleted while the tool runs
    assert cloud.call('DELETE', f'/accelerator_requests?instance={server}').status_code == 204
    assert cloud.arqs() == []
    assert answer().status_code == 404
    # then nobody gets the region before the tool has ended
    second = in_thread(bound, cloud, 'any', rp=rp)
    host.goes_on.set()
    second()
    assert len(host.loaded) == 1
    # and what is said of the region is true
    assert region(cloud)['bitstream_id'] in (None, image)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    assert statuses(cloud, arq) == []


@no_wait
def test_a_region_whose_request_is_deleted_is_not_given_out_half_programmed(
    cloud, host, image, gzip
):
    other = add_image(cloud, FIRST_FUNCTION)
    cloud.profile('other', FPGA | {'accel:bitstream_id': other})
    host.goes_on.clear()
    arq, answer = bind(cloud, gzip)
    assert answer.status_code == 202
    assert host.is_loading.wait(PATIENCE)
    delete(cloud, arq)
    [second] = cloud.request('other')
    assert cloud.bind(second).status_code == 409
    host.goes_on.set()
    eventually(lambda: cloud.bind(second).status_code == 202)
    eventually(lambda: shown(cloud, second)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == other


def test_a_request_that_fetches_its_image_can_be_unbound(cloud, host, image, gzip):
    cloud.glance.goes_on.clear()
    [arq], rp = cloud.request(gzip), cloud.rp()
    answer = in_thread(cloud.bind, arq, rp=rp)
    eventually(lambda: shown(cloud, arq)['state'] == 'BindStarted')
    assert cloud.unbind(arq).status_code == 202
    assert shown(cloud, arq)['state'] == 'Unbound'
    cloud.glance.goes_on.set()
    assert answer().status_code in (404, 409)
    assert cloud.bind(arq, rp=rp).status_code == 202
    assert region(cloud)['bitstream_id'] == image


@no_wait
def test_an_image_that_is_fetched_for_a_request_that_has_gone_is_not_loaded(
    cloud, host, image, gzip
):
    cloud.glance.goes_on.clear()
    arq, _ = bind(cloud, gzip)
    eventually(lambda: any(path.endswith('/file') for path, _ in cloud.glance.requests))
    delete(cloud, arq)
    cloud.glance.goes_on.set()
    require_free(cloud)
    assert host.loaded == []
    assert 'nothing was loaded' in region(cloud)['program_error']
    # and the next one gets what it asks for
    bound(cloud, gzip)
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


@pytest.mark.parametrize(
    'cloud',
    [f'{NO_WAIT}[conductor]\nbind_timeout = 1\nprogram_timeout = 1\nattach_attempts = 20\n'],
    indirect=True,
    ids=['many attempts'],
)
def test_nothing_is_fetched_or_loaded_after_the_deadline_of_a_bind(cloud, host, image, gzip):
    cloud.glance.refuses = 503
    arq, _ = bind(cloud, gzip)
    eventually(lambda: shown(cloud, arq)['state'] == 'BindFailed')
    mend_glance(cloud)
    require_free(cloud)
    assert host.loaded == []
    assert not any(path.endswith('/file') for path, _ in cloud.glance.requests)


# -- a Glance that fails, a card that goes ----------------------------------------------------


def fail_glance(cloud, how):
    if how == 'breaks off':
        cloud.glance.breaks_off = True
    else:
        cloud.glance.refuses = how


def mend_glance(cloud):
    cloud.glance.refuses, cloud.glance.breaks_off = None, False


def left_on_host(cloud):
    """What the fetching of images has left behind."""
    return [path for path in cloud.directory.rglob('*bitstream-*') if path.is_file()]


@pytest.mark.parametrize(
    'cloud', ['bitstream_cache_size = 100\n', ''], indirect=True, ids=['cache', 'no cache']
)
def test_a_bind_fails_while_the_disk_of_its_host_is_full(cloud, host, image, gzip, monkeypatch):
    usual, made = tempfile.mkstemp, []

    def mkstemp(*arguments, **options):
        if 'bitstream-' not in options.get('prefix', ''):
            return usual(*arguments, **options)
        handle, name = usual(*arguments, **options)
        made.append(Path(name))
        made[-1].unlink()
        made[-1].symlink_to('/dev/full')
        return handle, name

    with monkeypatch.context() as full:
        full.setattr(tempfile, 'mkstemp', mkstemp)
        arq, answer = bind(cloud, gzip)
        # then the tenant reads why, and nothing was changed
        require_failed(
            cloud, arq, answer, f'{image} is not loaded: it cannot be stored on the host: No'
        )
    assert made and not any(path.is_symlink() for path in made)
    assert (host.loaded, left_on_host(cloud)) == ([], [])
    # when there is room again
    bound(cloud, gzip)
    assert region(cloud)['bitstream_id'] == image


@pytest.mark.parametrize('how', [401, 404, 503, 'breaks off'])
def test_a_bind_is_done_or_failed_when_glance_fails(cloud, host, image, gzip, how):
    fail_glance(cloud, how)
    [arq] = cloud.request(gzip)
    answer = in_thread(cloud.bind, arq)
    eventually(lambda: cloud.glance.requests)
    mend_glance(cloud)
    if how == 404:  # there is no such image: this does not get better
        require_failed(cloud, arq, answer(), image)
    else:
        assert answer().status_code in (202, 409)
        eventually(lambda: shown(cloud, arq)['state'] in ('Bound', 'BindFailed'))
        if shown(cloud, arq)['state'] == 'BindFailed':
            assert 'Glance' in history(cloud, arq)[-1]['reason']
            require_free(cloud)
        else:
            assert region(cloud)['bitstream_id'] == image
    assert left_on_host(cloud) == []


@short_of_time
@pytest.mark.parametrize('how', [401, 503, 'breaks off'])
def test_a_bind_whose_glance_does_not_recover_fails_in_its_words(cloud, host, image, gzip, how):
    fail_glance(cloud, how)
    arq, _ = bind(cloud, gzip)
    eventually(lambda: shown(cloud, arq)['state'] == 'BindFailed')
    assert 'Glance' in history(cloud, arq)[-1]['reason']
    eventually(lambda: statuses(cloud, arq) == ['failed'])
    require_free(cloud)  # the host has given up by then
    mend_glance(cloud)
    assert (host.loaded, left_on_host(cloud)) == ([], [])


@no_wait
@pytest.mark.parametrize('step', ['fetching', 'loading'])
def test_a_card_that_is_pulled_while_it_is_programmed_leaves_nothing_stuck(
    cloud, host, image, gzip, step
):
    waiting = {'fetching': cloud.glance.goes_on, 'loading': host.goes_on}[step]
    waiting.clear()
    arq, _ = bind(cloud, gzip)
    if step == 'loading':
        assert host.is_loading.wait(PATIENCE)
    else:
        eventually(lambda: any(path.endswith('/file') for path, _ in cloud.glance.requests))
    host.pull_out(ADDRESS)
    eventually(lambda: cloud.get('/devices')['devices'][0]['is_missing'])
    host.is_broken = True  # the tool does not find the card
    waiting.set()
    eventually(lambda: shown(cloud, arq)['state'] == 'BindFailed')
    eventually(lambda: cloud.get('/devices')['devices'] == [])
    eventually(lambda: statuses(cloud, arq) == ['failed'])
    host.is_broken = False
    host.plug_in('8086:09c4', at=ADDRESS)
    eventually(lambda: cloud.get('/devices')['devices'])
    require_free(cloud)
    assert left_on_host(cloud) == []


# -- agents that go meanwhile ----------------------------------------------------------------


@no_wait
@pytest.mark.parametrize('way', ['stop', 'kill'])
@pytest.mark.parametrize('is_broken', [False, True], ids=['finishes', 'fails'])
def test_an_agent_that_is_restarted_leaves_nothing_stuck(
    cloud, agents, host, image, gzip, way, is_broken
):
    rp = cloud.rp()
    host.goes_on.clear()
    arq, answer = bind(cloud, gzip, rp=rp)
    assert answer.status_code == 202
    assert host.is_loading.wait(PATIENCE)
    # when the agent is restarted while the tool runs
    stopped = getattr(agents, way)()
    host.is_broken = is_broken
    host.goes_on.set()
    stopped()
    agents.start()
    # then the bind ends: by the tool's success, or by its failure
    ends = 'BindFailed' if is_broken else 'Bound'
    eventually(lambda: shown(cloud, arq)['state'] == ends)
    if is_broken:
        assert 'The card does not answer' in history(cloud, arq)[-1]['reason']
        eventually(lambda: statuses(cloud, arq) == ['failed'])
        host.is_broken = False
        require_free(cloud)
    else:
        assert region(cloud)['bitstream_id'] == image
        eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
        eventually(lambda: statuses(cloud, arq) == ['completed'])


@no_wait
def test_an_agent_that_was_killed_programs_what_it_left_undone(cloud, agents, host, image, gzip):
    host.goes_on.clear()
    arq, _ = bind(cloud, gzip)
    assert host.is_loading.wait(PATIENCE)
    # given a tool that died with the agent
    stopped = agents.kill()
    host.is_broken = True
    host.goes_on.set()
    stopped()
    assert shown(cloud, arq)['state'] in ('BindStarted', 'Unknown')
    # when the card is well again
    host.is_broken = False
    agents.start()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert len(host.loaded) >= 2
    assert region(cloud)['bitstream_id'] == image


@no_wait
def test_a_bind_to_a_host_whose_agent_is_away_is_done_when_it_is_back(
    cloud, agents, host, image, gzip
):
    rp = cloud.rp()
    agents.stop()()
    arq, answer = bind(cloud, gzip, rp=rp)
    assert answer.status_code == 202
    assert host.loaded == []
    agents.start()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


def test_a_restart_of_the_agent_alone_loads_nothing(cloud, agents, host, image, gzip):
    arq = bound(cloud, gzip)
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    agents.restart()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    cloud.rest()
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


# -- hosts that are switched off and on ------------------------------------------------------


def test_after_a_reboot_a_bound_region_is_programmed_before_it_is_bound_again(
    cloud, agents, host, image, gzip
):
    arq = bound(cloud, gzip)
    before = shown(cloud, arq)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    # when the host is switched off and on, and its card has forgotten its image
    agents.stop()()
    host.reboot()
    host.is_loading.clear()
    host.goes_on.clear()
    agents.start()
    # then its request is not bound until it is programmed again
    eventually(lambda: shown(cloud, arq)['state'] == 'Provisioning')
    assert host.is_loading.wait(PATIENCE)
    assert shown(cloud, arq)['state'] == 'Provisioning'
    assert shown(cloud, arq)['attach_handle_info'] == before['attach_handle_info']
    host.goes_on.set()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert [
        step['to_state'] for step in history(cloud, arq) if step['from_state'] != step['to_state']
    ][-3:] == ['Bound', 'Provisioning', 'Bound']
    assert len(host.loaded) == 2
    eventually(lambda: region(cloud)['bitstream_id'] == image)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    eventually(lambda: statuses(cloud, arq) == ['completed'] * 2)


def test_a_card_that_was_pulled_is_programmed_when_it_is_back(cloud, host, image, gzip):
    arq = bound(cloud, gzip)
    before = shown(cloud, arq)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    # when its card is pulled and put in again, while the agent runs
    host.pull_out(ADDRESS)
    eventually(lambda: not is_free(cloud) or 'FPGA' not in published(cloud)['inventories'])
    host.is_loading.clear()
    host.goes_on.clear()
    host.plug_in('8086:09c4', at=ADDRESS)
    # then its request is not bound until it is programmed again
    eventually(lambda: shown(cloud, arq)['state'] == 'Provisioning')
    assert host.is_loading.wait(PATIENCE)
    host.goes_on.set()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert shown(cloud, arq)['attach_handle_info'] == before['attach_handle_info']
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, image)


def test_a_card_that_is_back_before_its_agent_looks_is_programmed(cloud, host, image, gzip):
    arq = bound(cloud, gzip)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    with host.tree.change():  # no event arrives before both are done
        host.pull_out(ADDRESS)
        host.plug_in('8086:09c4', at=ADDRESS)
    eventually(lambda: len(host.loaded) == 2)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image


def test_a_card_whose_removal_is_among_lost_events_is_programmed(cloud, host, image, gzip):
    arq = bound(cloud, gzip)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    # when there were more events than the socket holds, and the card is back
    agent = cloud.agent()
    agent._monitor.stop()
    host.pull_out(ADDRESS)
    host.plug_in('8086:09c4', at=ADDRESS)
    agent._monitor.start()
    agent._on_event(hotplug.LOST)
    # then it counts as one that was without power
    eventually(lambda: len(host.loaded) == 2)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image


def test_a_card_that_was_pulled_does_not_wait_for_the_programming_of_another(
    cloud, host, image, gzip
):
    arq = bound(cloud, gzip)
    host.plug_in('8086:09c4', at=SECOND)
    other = f'compute1_{SECOND}_region0'
    eventually(lambda: other in cloud.providers('compute1'))
    # given an image that is being loaded into another card
    host.is_loading.clear()
    host.goes_on.clear()
    [part] = cloud.get(f'/deployables?name={other}')['deployables']
    answer = in_thread(program, cloud, image, part['uuid'])
    assert host.is_loading.wait(PATIENCE)
    # when the first card is pulled and put in again
    host.pull_out(ADDRESS)
    eventually(lambda: 'FPGA' not in published(cloud)['inventories'] or not is_free(cloud))
    host.plug_in('8086:09c4', at=ADDRESS)
    # then its loss is seen at once
    eventually(lambda: shown(cloud, arq)['state'] == 'Provisioning')
    host.goes_on.set()
    assert answer().status_code == 200
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert len(host.loaded) == 3


def test_a_disabled_card_gets_back_what_its_server_had(cloud, agents, host, image, gzip):
    arq = bound(cloud, gzip)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    device = region(cloud)['device_uuid']
    assert cloud.call('POST', f'/devices/{device}/disable').status_code == 204
    agents.stop()()
    host.reboot()
    agents.start()
    eventually(lambda: len(host.loaded) == 2)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image


def test_a_region_that_cannot_be_programmed_again_holds_up_nothing_else(
    cloud, agents, host, image, gzip, monkeypatch
):
    arq = bound(cloud, gzip)
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    agents.stop()()
    host.reboot()
    # given a part of the region that is withheld for another reason
    is_refused = threading.Event()
    withhold = tasks._withhold_free_parts

    def refuse(unit, part, holders):
        if not is_refused.is_set():
            is_refused.set()
            raise errors.CannotProgram(uuid=part.uuid, why='a part of it is quarantined.')
        withhold(unit, part, holders)

    monkeypatch.setattr(tasks, '_withhold_free_parts', refuse)
    agents.start()
    assert is_refused.wait(PATIENCE)
    # then the report of its host is taken, and the next one has the image loaded
    eventually(lambda: shown(cloud, arq)['state'] in ('Provisioning', 'Bound'))
    host.plug_in('8086:09c4', at=SECOND)
    eventually(lambda: len(cloud.get('/devices')['devices']) == 2)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound' and len(host.loaded) == 2)
    assert region(cloud)['bitstream_id'] == image


def test_after_a_reboot_a_request_has_the_image_that_an_operator_loaded(cloud, agents, host, image):
    assert program(cloud, image).status_code == 200
    eventually(lambda: trait(FUNCTION) in published(cloud)['traits'])
    cloud.profile('function', {'resources:FPGA': '1', f'trait:{trait(FUNCTION)}': 'required'})
    arq = bound(cloud, 'function')
    agents.stop()()
    host.reboot()
    host.is_loading.clear()
    host.goes_on.clear()
    agents.start()
    assert host.is_loading.wait(PATIENCE)
    assert shown(cloud, arq)['state'] == 'Provisioning'
    host.goes_on.set()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, image)


def test_a_region_that_nobody_has_is_left_as_the_reboot_left_it(cloud, agents, host, image, gzip):
    delete(cloud, bound(cloud, gzip))
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    agents.stop()()
    host.reboot()
    agents.start()
    eventually(lambda: region(cloud)['bitstream_id'] is None)
    eventually(lambda: trait(FIRST_FUNCTION) in published(cloud)['traits'])
    assert len(host.loaded) == 1


def test_an_image_that_cannot_be_had_after_a_reboot_is_loaded_when_it_can(
    cloud, agents, host, image, gzip
):
    arq = bound(cloud, gzip)
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    agents.stop()()
    host.reboot()
    facts = cloud.glance.images.pop(image)
    agents.start()
    eventually(lambda: region(cloud)['program_error'])
    assert shown(cloud, arq)['state'] == 'Provisioning'
    # when Glance has it again
    cloud.glance.images[image] = facts
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image


def test_between_two_attempts_no_image_is_said_to_be_loaded(
    cloud, agents, host, image, gzip, monkeypatch
):
    bound(cloud, gzip)
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    monkeypatch.setattr(tasks, 'pause', lambda attempts: 600.0 * bool(attempts))
    host.is_broken = True
    agents.stop()()
    host.reboot()
    agents.start()
    eventually(lambda: region(cloud)['program_error'])
    progress = region(cloud)['program_progress']
    assert re.fullmatch(
        r'Attempt 1 failed; the next one begins at [-0-9]{10}T[:0-9]{8}Z\.', progress
    )


def test_a_request_can_be_deleted_while_its_region_is_programmed_again(
    cloud, agents, host, image, gzip
):
    arq = bound(cloud, gzip)
    agents.stop()()
    host.reboot()
    host.is_loading.clear()
    host.goes_on.clear()
    agents.start()
    assert host.is_loading.wait(PATIENCE)
    delete(cloud, arq)
    host.goes_on.set()
    require_free(cloud)


def test_what_a_guest_has_is_not_programmed_again(cloud, agents, host, image, gzip):
    """The card shows nothing of its content while it belongs to a guest."""
    arq = bound(cloud, gzip)
    eventually(lambda: FUNCTION in region(cloud)['attributes_list'])
    card = pci.Function.at(host.sysfs, ADDRESS)
    card.write('driver_override', 'vfio-pci')
    (card / 'driver').write('unbind', ADDRESS)
    host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
    eventually(lambda: FUNCTION not in region(cloud)['attributes_list'])
    agents.restart()
    cloud.rest()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)


class ManagedHost(SimHost):
    """A card that never shows its content."""

    CARD: ClassVar = {'model': '1bd4:0911', 'at': ADDRESS, 'driver': 'x', 'fpga_manager': {}}

    def __init__(self, name, directory):
        super().__init__(name, directory, [self.CARD], ['inspur_fpga_driver'])
        self.loaded = []
        load = self.tools['cyborg-fpga-load']
        self.tools['cyborg-fpga-load'] = lambda *arguments: (
            self.loaded.append(arguments[-1]) or load(*arguments)
        )


def test_an_image_that_a_card_never_shows_is_loaded_again_after_a_reboot_only(cloud, agents):
    host = agents.host(make=ManagedHost)
    image = cloud.glance.add(SYNC + b'bits', visibility='public', bitstream_type='raw')
    cloud.profile('raw', FPGA | {'accel:bitstream_id': image})
    arq = bound(cloud, 'raw')
    agents.restart()
    cloud.rest()
    assert (shown(cloud, arq)['state'], len(host.loaded)) == ('Bound', 1)
    # when the host is switched off and on
    agents.stop()()
    host.power_cycle()
    agents.start()
    eventually(lambda: len(host.loaded) == 2)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image


def test_an_image_that_a_card_never_shows_is_loaded_again_after_the_card_was_pulled(cloud, agents):
    host = agents.host(make=ManagedHost)
    image = cloud.glance.add(SYNC + b'bits', visibility='public', bitstream_type='raw')
    cloud.profile('raw', FPGA | {'accel:bitstream_id': image})
    arq = bound(cloud, 'raw')
    # when its card is pulled and put in again, while the agent runs
    host.pull_out(ADDRESS)
    eventually(lambda: cloud.get('/devices')['devices'][0]['is_missing'])
    host.plug_in(**host.CARD)
    # then the card has the image again
    eventually(lambda: len(host.loaded) == 2)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image
    # and keeps it when only the agent is started again
    agents.restart()
    cloud.rest()
    assert (shown(cloud, arq)['state'], len(host.loaded)) == ('Bound', 2)


# -- operators who program -------------------------------------------------------------------


@no_wait
def test_an_operator_cannot_program_what_a_bind_is_programming(cloud, host, image, gzip):
    host.goes_on.clear()
    arq, _ = bind(cloud, gzip)
    assert host.is_loading.wait(PATIENCE)
    answer = program(cloud, add_image(cloud, FIRST_FUNCTION))
    assert answer.status_code == 409
    assert arq['uuid'] in answer.text or 'is being loaded into it' in answer.text
    host.goes_on.set()
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)
    # nor what it has programmed
    answer = program(cloud, add_image(cloud, FIRST_FUNCTION))
    assert answer.status_code == 409
    assert f'accelerator request {arq["uuid"]} has a part of it' in answer.text


def test_a_bind_waits_for_an_operator_who_is_programming(cloud, host, image, gzip):
    other, rp = add_image(cloud, FIRST_FUNCTION), cloud.rp()
    host.goes_on.clear()
    programming = in_thread(program, cloud, other)
    assert host.is_loading.wait(PATIENCE)
    [arq] = cloud.request(gzip)
    answer = in_thread(cloud.bind, arq, rp=rp)
    host.goes_on.set()
    assert programming().status_code == 200
    answered = answer()
    assert answered.status_code == 202, answered.text
    # its own image was loaded after the operator's
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, image)
    assert shown(cloud, arq)['state'] == 'Bound'


@no_wait
def test_a_bind_that_cannot_wait_for_an_operator_can_be_repeated(cloud, host, image, gzip):
    other, rp = add_image(cloud, FIRST_FUNCTION), cloud.rp()
    host.goes_on.clear()
    assert program(cloud, other).status_code == 202
    assert host.is_loading.wait(PATIENCE)
    [arq] = cloud.request(gzip)
    assert cloud.bind(arq, rp=rp).status_code == 409
    assert shown(cloud, arq)['state'] == 'Initial'
    host.goes_on.set()
    eventually(lambda: cloud.bind(arq, rp=rp).status_code == 202)
    eventually(lambda: shown(cloud, arq)['state'] == 'Bound')
    assert region(cloud)['bitstream_id'] == image


# -- what is attached to no guest ------------------------------------------------------------


def attached_by_nova(arqs):
    """What nova-compute gives a guest: it takes PCI and MDEV, and passes others over. Before
    release 34 one of another type has it pass over all of them."""
    return [arq for arq in arqs if arq['attach_handle_type'] in ('PCI', 'MDEV')]


@pytest.mark.parametrize('target', ['host', 'none'])
def test_what_is_for_no_guest_is_programmed_and_held_and_nova_leaves_it_alone(
    cloud, host, image, target
):
    cloud.profile('offload', FPGA | {'accel:attach_target': target, 'accel:bitstream_id': image})
    server = Server(cloud, 'offload')
    server.create('compute1')
    # Nova reads the requests at 2.0, and starts the guest without it
    [found] = server.accelerators
    assert found['state'] == 'Bound'
    assert attached_by_nova(server.accelerators) == []
    # a type that every client knows, and where it is, for who uses it on the host
    assert found['attach_handle_type'] == 'TEST_PCI'
    assert found['attach_handle_info'] == {
        'domain': '0000',
        'bus': '5e',
        'device': '00',
        'function': '0',
    }
    assert found['attach_handle_uuid']
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (1, image)
    # nobody else gets it
    refused = bind(cloud, 'any')[1]
    assert refused.status_code == 409 and 'no free attach handle' in refused.text
    server.reboot()
    assert server.accelerators == [found]
    server.delete()
    require_free(cloud)


@pytest.mark.parametrize('target', ['host', 'none'])
def test_a_target_needs_no_image(cloud, host, target):
    cloud.profile('offload', FPGA | {'accel:attach_target': target})
    arq = bound(cloud, 'offload')
    assert shown(cloud, arq)['attach_handle_type'] == 'TEST_PCI'
    assert host.loaded == []


def test_a_guest_gets_what_is_for_guests(cloud, host, image):
    cloud.profile('guest', FPGA | {'accel:attach_target': 'VM', 'accel:bitstream_id': image})
    arq = bound(cloud, 'guest')
    assert attached_by_nova([shown(cloud, arq)])
    assert region(cloud)['bitstream_id'] == image


# -- whole servers, call by call as Nova makes them ------------------------------------------


@pytest.fixture
def second_host(cloud, agents, host):
    return agents.host('compute2', make=FpgaHost)


def test_a_server_is_created_rebuilt_and_deleted(cloud, host, image, gzip):
    server = Server(cloud, gzip)
    server.create('compute1')
    first = server.accelerators
    assert [arq['state'] for arq in first] == ['Bound']
    server.reboot()
    server.rebuild()
    assert server.accelerators == first
    assert len(host.loaded) == 1
    server.delete()
    require_free(cloud)


@no_wait
def test_a_server_waits_for_the_event_of_a_slow_programming(cloud, host, image, gzip):
    host.goes_on.clear()
    server = Server(cloud, gzip)
    server.patience = PATIENCE
    created = in_thread(server.create, 'compute1')
    assert host.is_loading.wait(PATIENCE)
    host.goes_on.set()
    created()
    assert [arq['state'] for arq in server.accelerators] == ['Bound']


def test_a_server_whose_programming_fails_leaves_nothing_behind(cloud, host, image, gzip):
    host.is_broken = True
    server = Server(cloud, gzip)
    with pytest.raises(Failed, match='The card does not answer'):
        server.create('compute1')
    server.delete()
    assert cloud.arqs() == []
    host.is_broken = False
    require_free(cloud)
    again = Server(cloud, gzip)
    again.create('compute1')
    assert region(cloud)['bitstream_id'] == image


def test_a_server_that_is_unshelved_elsewhere_finds_its_function_there(
    cloud, host, second_host, image, gzip
):
    server = Server(cloud, gzip)
    server.create('compute1')
    server.shelve()
    require_free(cloud)
    server.unshelve('compute2')
    assert [arq['state'] for arq in server.accelerators] == ['Bound']
    assert region(cloud, 'compute2')['bitstream_id'] == image
    assert len(second_host.loaded) == 1


def test_a_server_that_is_evacuated_finds_its_function_there(
    cloud, agents, host, second_host, image, gzip
):
    server = Server(cloud, gzip)
    server.create('compute1')
    agents.stop('compute1')()
    server.evacuate('compute2')
    assert region(cloud, 'compute2')['bitstream_id'] == image
    # and the source, when it is back, is for others
    host.reboot()
    agents.start('compute1')
    server.source_is_back('compute1')
    require_free(cloud)
    assert len(host.loaded) == 1
    server.reboot()
    assert [arq['state'] for arq in server.accelerators] == ['Bound']


def test_an_administrator_evacuates_a_server_whose_image_is_private_to_its_owner(
    cloud, agents, host, second_host, as_project
):
    private = add_image(cloud, visibility='private', owner='mine')
    cloud.profile('own', FPGA | {'accel:bitstream_id': private})
    as_project('mine')
    server = Server(cloud, 'own')
    server.create('compute1')
    agents.stop('compute1')()
    # when somebody else evacuates it, the image is loaded for the owner of the server
    as_project('admins', user='root')
    server.evacuate('compute2')
    assert [arq['state'] for arq in server.accelerators] == ['Bound']
    assert region(cloud, 'compute2')['bitstream_id'] == private
