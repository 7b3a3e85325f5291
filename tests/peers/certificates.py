"""Authorities, and certificates that they have signed, made by openssl.

This file alone decides what is in them. Everything is PEM, and valid for a day or two.
"""

import subprocess
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"openssl {' '.join(arguments)}\n{done.stderr}")


class Authority:
    """Somebody who signs certificates; all files lie in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *_KEY, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def sign(self, name: str, *, alternative_name: str, days: int = 1) -> tuple[Path, Path]:
        """Make a certificate for a name as ``IP:127.0.0.1``; return its file and its key's."""
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.extensions"
        extensions.write_text(f"subjectAltName={alternative_name}\n")
        _openssl(
            *("req", *_KEY, "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-out", str(certificate), "-days", str(days)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-extfile", str(extensions)),
        )
        return certificate, key


def encrypted(key: Path, password: str) -> Path:
    """Make a copy of a key that only a password opens."""
    path = key.with_suffix(".locked.key")
    _openssl("pkcs8", "-topk8", "-in", str(key), "-out", str(path), "-passout", f"pass:{password}")
    return path


def pkcs12(certificate: Path, key: Path, password: str) -> Path:
    """Pack a certificate and its key as Java's and other keystores do."""
    path = certificate.with_suffix(".p12")
    _openssl(
        *("pkcs12", "-export", "-in", str(certificate), "-inkey", str(key)),
        *("-out", str(path), "-passout", f"pass:{password}"),
    )
    return path
