"""Keys and ciphers of encrypted media: the reading half of docs/media-format-encryption.md, section by section."""

import base64
import hashlib
import hmac
import os
import struct

import blake3
import google_crc32c
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WRAPPED_KEY_LENGTH = 128
TAG_LENGTH = 16
KEY_FILE_LIMIT = 16 << 10
SIDECAR_LIMIT = 32 + WRAPPED_KEY_LENGTH * 64 + 4
SECRET_LABEL, PUBLIC_LABEL = "FULLBORE-SECRET-KEY-1", "FULLBORE-PUBLIC-KEY-1"


class WrongKey(Exception):
    """Why the data key cannot be had."""


def hkdf(secret, info, salt=b""):
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=info).derive(secret)


class SetKeys:
    """Keys of a media set: what comes from the data key."""

    def __init__(self, data_key):
        self.block_cipher = AESGCM(hkdf(data_key, b"fullbore 0 block"))
        self.footer_key = hkdf(data_key, b"fullbore 0 footer")

    def open_block(self, sequence, associated, body):
        """A sealed block: prefix ‖ payload, or None when it does not authenticate. `body` begins with the tag."""
        nonce = bytes(4) + struct.pack("<Q", sequence)
        try:
            return self.block_cipher.decrypt(nonce, body[TAG_LENGTH:] + body[:TAG_LENGTH], associated)
        except InvalidTag:
            return None

    def footer_mac(self, footer):
        """MEDIA_FORMAT §7: over the footer with `mac` (at 2176) and `footer_crc` (at 4092) as zeros."""
        return hmac.new(self.footer_key, footer[:2176] + bytes(32) + footer[2208:4092] + bytes(4), hashlib.sha256).digest()


def unwrap_data_key(key_file, media_set_id, records):
    """Wrapped keys: tries each record that carries the id of the key."""
    secret_bytes, public = read_key_file(key_file)
    if secret_bytes is None:
        raise WrongKey(f"{key_file}: holds no secret key")
    secret, key_id = X25519PrivateKey.from_private_bytes(secret_bytes), blake3.blake3(public).digest()[:16]
    for record in records:
        ephemeral, sealed = record[16:48], record[48:96]
        if record[:16] != key_id:
            continue
        try:
            shared = secret.exchange(X25519PublicKey.from_public_bytes(ephemeral))  # Refuses an all-zero result itself.
            wrapping = hkdf(shared, b"fullbore 0 wrap" + media_set_id, salt=ephemeral + public)
            return AESGCM(wrapping).decrypt(bytes(12), sealed, key_id + media_set_id)
        except (ValueError, InvalidTag):
            continue
    raise WrongKey(f"{key_file}: key {key_id.hex()} does not open this set")


def read_key_file(path):
    """Key files: (secret key or None, public key)."""
    keys = {}
    try:
        with open(path, "rb") as file:
            raw, mode = file.read(KEY_FILE_LIMIT + 1), os.fstat(file.fileno()).st_mode
        if len(raw) > KEY_FILE_LIMIT:
            raise ValueError("longer than 16 KiB")
        for line in raw.decode("utf-8").splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            label, text = line.split()
            content = base64.b64decode(text, validate=True)
            if label not in (SECRET_LABEL, PUBLIC_LABEL) or label in keys or len(content) != 36:
                raise ValueError("a line that is no key, or a second one")
            if struct.pack("<I", google_crc32c.value(label.encode() + content[:32])) != content[32:]:
                raise ValueError("checksum of a key")
            keys[label] = content[:32]
        secret, public = keys.get(SECRET_LABEL), keys.get(PUBLIC_LABEL)
        if secret and mode & 0o077:
            raise ValueError("others may read this secret: chmod 600")
        if secret:
            own = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
            if public not in (None, own):
                raise ValueError("the public key is not the one of the secret key")
            public = own
        if public is None:
            raise ValueError("no key in it")
    except (OSError, ValueError) as error:
        raise WrongKey(f"{path}: {error}") from None
    return secret, public


def read_sidecar(path, media_set_id):
    """Sidecar of a rotation: the records in it."""
    try:
        with open(path, "rb") as file:
            raw = file.read(SIDECAR_LIMIT + 1)
    except OSError as error:
        raise WrongKey(f"{path}: {error}") from None
    if len(raw) < 36 or raw[:10] != b"fbKEYS\0\0" + struct.pack("<H", 0):
        raise WrongKey(f"{path}: no sidecar of version 0")
    end = 32 + WRAPPED_KEY_LENGTH * struct.unpack_from("<H", raw, 10)[0]
    records = [raw[at : at + WRAPPED_KEY_LENGTH] for at in range(32, end, WRAPPED_KEY_LENGTH)]
    whole = len(raw) == end + 4 and raw[end:] == struct.pack("<I", google_crc32c.value(raw[:end]))
    if not whole or not 1 <= len(records) <= 64 or any(raw[12:16]) or any(any(record[96:]) for record in records):
        raise WrongKey(f"{path}: damaged")
    if raw[16:32] != media_set_id:
        raise WrongKey(f"{path}: of another media set")
    return records
