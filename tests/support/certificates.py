"""Certificates for tests of TLS, made when they are needed: an authority, and what it signs for how long.

They conform to RFC 5280, which Python 3.13 and newer insist on (`ssl.VERIFY_X509_STRICT`), unless a test asks for
one that does not. Needs the package `cryptography`. Keys are small for speed; nothing here is for production.
"""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from mailboat.clock import Clock

_DAY: Final = timedelta(days=1)
_HOST: Final = ipaddress.ip_address("127.0.0.1")


class Identity(NamedTuple):
    """A certificate with its key, as PEM files.

    Attributes:
        certificate: The certificate alone.
        key: Its private key, without a password.
        both: Key, certificate and the authority's, as a broker wants them in one file.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path, clock: Clock, name: str = "authority") -> None:
        """Make the authority's own certificate, in `folder`."""
        self._folder = folder
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = self._signed(self._name, self._key, days=30, is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, *, days: int = 30, is_conforming: bool = True) -> Identity:
        """A certificate that is valid for so many days from yesterday on; with a negative number it has expired.

        Without `is_conforming` it lacks the identifiers of its key and of its issuer's, as older tools make them.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _pem(self._signed(_named(name), key, days=days, is_conforming=is_conforming))
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        found = Identity(*(self._folder / f"{name}{suffix}" for suffix in (".pem", ".key", ".both.pem")))
        found.certificate.write_bytes(certificate)
        found.key.write_bytes(key_pem)
        found.both.write_bytes(key_pem + certificate + _pem(self._certificate))
        return found

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: int,
        is_authority: bool = False,
        is_conforming: bool = True,
    ) -> x509.Certificate:
        now = self._clock.now()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY + min(days, 0) * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if is_conforming:
            signer, own = self._key.public_key(), key.public_key()
            builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
            builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
        builder = builder.add_extension(_usage(is_authority=is_authority), critical=True)
        if not is_authority:
            roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(roles), critical=False)
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(_HOST)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    unused = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        decipher_only=False,
        **unused,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
