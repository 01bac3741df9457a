# SPDX-License-Identifier: Apache-2.0
"""Checks signatures of images with cursive and certificates from a key manager (Barbican)."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from keystoneauth1.exceptions import ClientException
from oslo_context import context
from oslo_log import log

from cyborg import errors
from cyborg.clients.glance import Glance

LOG = log.getLogger(__name__)

CERTIFICATE = 'img_signature_certificate_uuid'
PROPERTIES = (CERTIFICATE, 'img_signature_hash_method', 'img_signature', 'img_signature_key_type')
MOST_UNANSWERED = 64  #: questions to the key manager, each with its thread, at one time


class Signatures:
    """Makes a SignatureCheck for each image."""

    def __init__(self, glance: Glance | None, trusted: Sequence[str]) -> None:
        try:
            from cursive import certificate_utils, signature_utils
        except ImportError as error:
            raise errors.ConfigError(
                why='[agent] verify_bitstream_signatures is true, but cursive cannot be imported '
                f'({error}): install cursive and castellan.'
            ) from error
        self._signatures, self._certificates = signature_utils, certificate_utils
        self._glance = glance
        self._trusted = list(trusted)
        self._unanswered = threading.BoundedSemaphore(MOST_UNANSWERED)

    def check(self, image: Mapping[str, Any], timeout: float) -> 'SignatureCheck':
        """Return a check for an image. Raises ImageRefused if the image is not signed, or its
        certificate is not trusted, and Unavailable if the key manager does not give it within
        ``timeout`` seconds."""
        if missing := [name for name in PROPERTIES if not image.get(name)]:
            raise errors.ImageRefused(
                image=image['id'], why=f'it is not signed: it has no {", ".join(missing)}.'
            )
        try:
            return SignatureCheck(image['id'], self._verifier_in_time(image, timeout))
        except errors.Unavailable as error:
            LOG.warning('%s', error.faultstring)
            raise
        except Exception as error:  # each key manager raises its own
            LOG.warning('The signature of image %s cannot be checked: %s', image['id'], error)
            if _is_of_key_manager(error):
                raise errors.Unavailable(
                    f'The key manager does not give the certificate of image {image["id"]}; the '
                    'log of the agent says more.'
                ) from error
            raise errors.ImageRefused(
                image=image['id'],
                why='its signature cannot be checked, or its certificate is '
                'not trusted; the log of the agent says more.',
            ) from error

    def _verifier_in_time(self, image: Mapping[str, Any], timeout: float) -> Any:
        """Ask the key manager in a thread: castellan gives its connections to Barbican no time
        limit. The thread of a question without an answer goes on until the connection breaks."""
        silence = errors.Unavailable(
            f'The key manager does not give the certificate of image {image["id"]}: it has not '
            f'answered within {timeout:.0f} seconds.'
        )
        results: list[Any] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                results.append(self._verifier(image))
            except BaseException as error:
                failures.append(error)
            finally:
                self._unanswered.release()

        end = time.monotonic() + timeout
        if not self._unanswered.acquire(timeout=timeout):
            raise silence
        thread = threading.Thread(target=run, name=f'key manager: {image["id"]}', daemon=True)
        try:
            thread.start()
        except RuntimeError as refusal:  # the process has as many threads as it may have
            self._unanswered.release()
            raise errors.Unavailable(
                f'The key manager cannot be asked for the certificate of image {image["id"]}: '
                f'{refusal}.'
            ) from refusal
        thread.join(max(0.0, end - time.monotonic()))
        if failures:
            raise failures[0]
        if not results:
            raise silence
        return results[0]

    def _verifier(self, image: Mapping[str, Any]) -> Any:
        credentials = _Context(self._glance)
        if self._trusted:
            self._certificates.verify_certificate(
                context=credentials,
                certificate_uuid=image[CERTIFICATE],
                trusted_certificate_uuids=self._trusted,
            )
        return self._signatures.get_verifier(credentials, *(image[name] for name in PROPERTIES))


def _is_of_key_manager(error: Exception) -> bool:
    """Returns whether the key manager has failed, so that another attempt may succeed. Cursive
    replaces the KeyManagerError of castellan by an error of its own."""
    from castellan.common.exception import CastellanException, KeyManagerError

    return isinstance(error, CastellanException | ClientException | OSError) or isinstance(
        error.__context__, KeyManagerError
    )


class SignatureCheck:
    """Verifies the signature of one image, whose data is added piece by piece."""

    def __init__(self, image: str, verifier: Any) -> None:
        self._image = image
        self._verifier = verifier

    def update(self, piece: bytes) -> None:
        self._verifier.update(piece)

    def verify(self) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            self._verifier.verify()
        except InvalidSignature as error:
            raise errors.ImageRefused(
                image=self._image, why='its data does not match its signature.'
            ) from error


class _Context(context.RequestContext):
    """Gives castellan the credentials of [glance]."""

    def __init__(self, glance: Glance | None) -> None:
        super().__init__(overwrite=False)
        self._glance = glance

    def get_auth_plugin(self) -> Any:
        return self._glance and self._glance.auth
