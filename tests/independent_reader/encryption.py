"""Encryption of media (§8, docs/media-format-encryption.md): not read yet, encrypted media are refused."""

WRAPPED_KEY_LENGTH = 128


class WrongKey(Exception):
    """Why the data key cannot be had."""


def unwrap_data_key(_key_file, _header, _wrapped_keys):
    raise WrongKey("encrypted: this reader cannot open keys yet")
