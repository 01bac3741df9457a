# SPDX-License-Identifier: Apache-2.0
"""The format of errors in answers."""

import json
from http import HTTPStatus
from typing import Any

import oslo_messaging as messaging
import webob
import webob.exc
import webob.request
from oslo_log import log

from cyborg import errors

LOG = log.getLogger(__name__)
#: the key of the sentence in the environment of a request
FAULT = 'cyborg.fault'

RETRY_AFTER = 5  #: seconds after which a client may try again when a service is not available


def body(code: int, sentence: str) -> bytes:
    """Returns the body of an error: one key whose value is JSON in a string, as clients expect."""
    fault = {
        'faultcode': 'Client' if code < HTTPStatus.INTERNAL_SERVER_ERROR else 'Server',
        'faultstring': sentence,
        'debuginfo': None,
    }
    return json.dumps({'error_message': json.dumps(fault)}).encode()


def is_ours(response: webob.Response) -> bool:
    """Returns whether an answer has that format already."""
    return bool(response.body.startswith(b'{"error_message": '))


def answer(error: Exception, environ: dict[str, Any] | None = None) -> webob.Response:
    """Returns the answer to a request that failed. Unexpected errors are only logged in full. The
    message is left in ``environ`` for the access log."""
    code, sentence = _told(error)
    if environ is not None:
        environ[FAULT] = sentence
    response = webob.Response(
        status=code, body=body(code, sentence), content_type='application/json'
    )
    if isinstance(error, webob.exc.HTTPMethodNotAllowed):
        response.allow = error.allow
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        response.retry_after = RETRY_AFTER
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
        case UnicodeDecodeError():  # of the URL; the body is decoded in types/validation.py
            return HTTPStatus.BAD_REQUEST, 'The URL must be UTF-8, percent-encoded.'
        case messaging.MessagingTimeout() | messaging.MessageDeliveryFailure():
            LOG.error('The conductor does not answer: %s', error)
            away = errors.Unavailable('The conductor does not answer; try again later.')
            return away.code, away.faultstring
    LOG.error('A request failed unexpectedly.', exc_info=error)
    unforeseen = errors.CyborgError()
    return unforeseen.code, unforeseen.faultstring
