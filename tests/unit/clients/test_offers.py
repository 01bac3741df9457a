# SPDX-License-Identifier: Apache-2.0
"""Which providers have room, read from lists of any size."""

import io
import json

import pytest
import requests

from cyborg import errors
from cyborg.clients import placement_api
from cyborg.clients.placement import Offers


class Answering:
    """A service that answers each call with the same text."""

    def __init__(self, text):
        self._text = text

    def request(self, path, method, **options):
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO(self._text.encode())
        return response


def listed(*rows):
    return {'resource_providers': list(rows)}


ROWS = [
    {
        'uuid': 'one',
        'name': 'a "uuid": "none"',
        'parent_provider_uuid': 'two',
        'links': [{'rel': 'self', 'href': '/resource_providers/one'}],
    },
    {'uuid': 'three', 'name': 'ü', 'parent_provider_uuid': None, 'links': []},
]


@pytest.mark.parametrize(
    'text',
    [
        json.dumps(listed(*ROWS)),
        json.dumps(listed(*ROWS), ensure_ascii=False),
        # not as Placement writes it
        json.dumps(listed(*ROWS), separators=(',', ':')),
        json.dumps(listed(*ROWS), indent=1) + '\n',
    ],
)
def test_the_uuids_of_a_list_are_found_in_any_form_of_it(text):
    assert Offers(Answering(text)).offering([('FPGA', 1)]) == {'one', 'three'}


def test_an_empty_list_offers_nothing():
    assert Offers(Answering(json.dumps(listed()))).offering([('FPGA', 1)]) == set()


@pytest.mark.parametrize('text', ['<html>', json.dumps(listed(*ROWS))[:-9]])
def test_what_is_no_list_is_not_taken_for_one(text):
    with pytest.raises(errors.PlacementUnavailable):
        Offers(Answering(text)).offering([('FPGA', 1)])


@pytest.mark.parametrize('is_ascii', [True, False])
def test_the_names_of_disabled_hosts_are_read_as_they_are(is_ascii):
    text = json.dumps(listed(*ROWS), ensure_ascii=is_ascii)
    assert Offers(Answering(text)).disabled_hosts() == {'a "uuid": "none"', 'ü'}


@pytest.mark.parametrize('size', [1, 7, 30, 100])
def test_a_list_may_arrive_in_any_pieces(monkeypatch, size):
    monkeypatch.setattr(placement_api, 'CHUNK', size)
    text = json.dumps(listed(*ROWS), ensure_ascii=False)
    assert Offers(Answering(text)).offering([('FPGA', 1)]) == {'one', 'three'}
    assert Offers(Answering(text)).disabled_hosts() == {'a "uuid": "none"', 'ü'}
