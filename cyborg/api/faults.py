# SPDX-License-Identifier: Apache-2.0
"""How an error looks on the wire."""

import json
from http import HTTPStatus

import oslo_messaging as messaging
import webob
import webob.exc
import webob.request
from oslo_log import log

from cyborg import errors

LOG = log.getLogger(__name__)


def body(code: int, sentence: str) -> bytes:
    """One key whose value is JSON in a string, as clients have known it for years."""
    fault = {
        'faultcode': 'Client' if code < HTTPStatus.INTERNAL_SERVER_ERROR else 'Server',
        'faultstring': sentence,
        'debuginfo': None,
    }
    return json.dumps({'error_message': json.dumps(fault)}).encode()


def is_ours(response: webob.Response) -> bool:
    """Does the answer have that shape already?"""
    return response.body.startswith(b'{"error_message": ')


def answer(error: Exception) -> webob.Response:
    """The answer to a request that failed. What only we understand goes to the log alone."""
    code, sentence = _told(error)
    response = webob.Response(
        status=code, body=body(code, sentence), content_type='application/json')
    if isinstance(error, webob.exc.HTTPMethodNotAllowed):
        response.allow = error.allow
    return response


def _told(error: Exception) -> tuple[int, str]:
    match error:
        case errors.CyborgError():
            if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                LOG.error('A request failed: %s', error)
            return error.code, error.faultstring
        case webob.exc.HTTPException():
            return error.status_int, error.detail or error.explanation
        case webob.request.DisconnectionError():
            return HTTPStatus.BAD_REQUEST, 'The body ended before its Content-Length.'
        case UnicodeDecodeError():  # bodies are looked after elsewhere
            return HTTPStatus.BAD_REQUEST, 'The URL must be UTF-8, percent-encoded.'
        case messaging.MessagingTimeout() | messaging.MessageDeliveryFailure():
            LOG.error('The conductor does not answer: %s', error)
            away = errors.Unavailable('The conductor does not answer; try again later.')
            return away.code, away.faultstring
    LOG.error('A request failed unexpectedly.', exc_info=error)
    unforeseen = errors.CyborgError()
    return unforeseen.code, unforeseen.faultstring
