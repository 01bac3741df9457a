# SPDX-License-Identifier: Apache-2.0
"""Requests to Glance, and the message for each of its failures."""

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.clients.glance import Glance
from cyborg.sim import glance as sim

MIB = 1024 * 1024


@pytest.fixture
def service():
    service = sim.Glance()
    service.start()
    yield service
    service.goes_on.set()
    service.stop()


@pytest.fixture
def connected(tmp_path):
    def connect(url):
        conf = cfg.ConfigOpts()
        options.register(conf)
        (tmp_path / 'cyborg.conf').write_text(f'[glance]\nauth_type = none\nendpoint = {url}\n')
        conf(['--config-file', str(tmp_path / 'cyborg.conf')])
        return Glance.connect(conf)

    return connect


@pytest.fixture
def glance(connected, service):
    return connected(service.url)


@pytest.mark.parametrize('suffix', ['', '/', '/v2', '/v2/'])
def test_an_address_with_and_without_a_version_will_do(connected, service, suffix):
    name = service.add(b'bits', **{'accel:function_id': 'f'})
    glance = connected(service.url + suffix)
    assert glance.image(name)['accel:function_id'] == 'f'
    assert b''.join(glance.data(name)) == b'bits'
    assert [image['id'] for image in glance.search({'accel:function_id': 'f'})] == [name]


def test_every_question_has_the_id_of_its_request(glance, service):
    name = service.add(b'bits')
    glance.image(name, 'req-1')
    list(glance.data(name, 'req-2'))
    glance.members(name, 'req-3')
    glance.search({}, 'req-4')
    assert [request for _, request in service.requests] == ['req-1', 'req-2', 'req-3', 'req-4']


def test_a_search_finds_images_of_all_pages_and_projects(glance, service):
    names = {
        service.add(b'bits', visibility='community', **{'bs-name': 'gzip'})
        for _ in range(2 * sim.PAGE + 1)
    }
    service.add(b'bits', **{'bs-name': 'other'})
    assert {image['id'] for image in glance.search({'bs-name': 'gzip'}, 'req-1')} == names
    assert {request for _, request in service.requests} == {'req-1'}


def test_members_are_told_with_their_status(glance, service):
    name = service.add(b'bits')
    service.members[name] = {'p': 'accepted', 'q': 'pending'}
    assert glance.members(name) == {'p': 'accepted', 'q': 'pending'}


@pytest.mark.parametrize(
    ('status', 'kind', 'sentence'),
    [
        (400, errors.BadRequest, 'Glance does not accept the query.'),
        (
            401,
            errors.Unavailable,
            'Glance does not accept the credentials that the host has in [glance].',
        ),
        (403, errors.NotFound, 'Glance does not have it, or does not show it to this host.'),
        (404, errors.NotFound, 'Glance does not have it, or does not show it to this host.'),
        (418, errors.Unavailable, 'Glance answered 418.'),
        (500, errors.Unavailable, 'Glance answered 500.'),
        (503, errors.Unavailable, 'Glance answered 503.'),
    ],
)
def test_a_refusal_is_a_sentence(glance, service, status, kind, sentence):
    name = service.add(b'bits')
    service.refuses = status
    for ask in (glance.image, glance.members, lambda name: list(glance.data(name))):
        with pytest.raises(errors.CyborgError) as caught:
            ask(name)
        assert type(caught.value) is kind
        assert caught.value.faultstring == sentence


def test_a_search_that_is_not_allowed_is_not_an_empty_one(glance, service):
    service.refuses = 403
    with pytest.raises(errors.Unavailable, match='does not let the user'):
        glance.search({'name': 'x'})


def test_a_glance_that_is_away_is_said_to_be_without_its_address(glance, service, caplog):
    name = service.add(b'bits')
    service.stop()
    with pytest.raises(errors.Unavailable) as caught:
        glance.image(name)
    assert caught.value.faultstring == 'Glance cannot be reached.'
    assert service.url in caplog.text


def test_data_that_breaks_off_is_an_error(glance, service):
    name = service.add(b'x' * 3 * MIB)
    service.breaks_off = True
    with pytest.raises(errors.Unavailable, match='connection to Glance broke'):
        list(glance.data(name))


def test_data_is_passed_on_as_it_arrives(glance, service):
    name = service.add(b'slow')
    service.byte_pause = 0.05
    pieces = list(glance.data(name))
    assert b''.join(pieces) == b'slow'
    assert len(pieces) > 1


def test_an_image_without_data_yields_none(glance, service):
    assert list(glance.data(service.add(b''))) == []


def test_an_answer_that_is_not_marked_as_data_is_not_read(glance, service):
    name = service.add(b'x' * 3 * MIB)
    service.content_type = 'text/html'
    with pytest.raises(errors.Unavailable, match='not an image'):
        list(glance.data(name))


def test_a_reader_that_stops_early_leaves_no_connection_open(glance, service):
    name = service.add(b'x' * 8 * MIB)
    service.goes_on.clear()
    pieces = glance.data(name)
    assert 0 < len(next(pieces)) <= MIB
    pieces.close()
    assert glance.image(name)['id'] == name


def test_a_service_that_is_not_glance_is_an_error(connected, service):
    glance = connected(service.url + '/other')
    with pytest.raises(errors.NotFound):
        glance.image(service.add(b'bits'))
    service.images['bad'] = ['not', 'an', 'object']
    with pytest.raises(errors.Unavailable, match='cannot be read'):
        connected(service.url).image('bad')
