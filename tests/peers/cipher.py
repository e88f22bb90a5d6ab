# SPDX-License-Identifier: GPL-2.0-or-later
"""What the agents' protocol takes from libcrypto: X25519, HKDF-SHA256, AES-256-GCM. Python has none of them but HMAC."""

import contextlib
import ctypes
import hmac
import secrets
import struct

CRYPTO = ctypes.CDLL("libcrypto.so.3")
X25519 = 1034  # NID_X25519 of obj_mac.h
GET_TAG, SET_TAG = 0x10, 0x11  # EVP_CTRL_AEAD_.. of evp.h
TAG = 16

for name in ("EVP_PKEY_new_raw_private_key", "EVP_PKEY_new_raw_public_key", "EVP_PKEY_CTX_new", "EVP_CIPHER_CTX_new", "EVP_aes_256_gcm"):
    getattr(CRYPTO, name).restype = ctypes.c_void_p


class Refused(Exception):
    """A message that does not authenticate."""


def call(name, *arguments):
    """A function of libcrypto that gives 1 or a pointer."""
    found = getattr(CRYPTO, name)(*arguments)
    if not found or found == -1:
        raise Refused(name)
    return found


@contextlib.contextmanager
def pointer(free, name, *arguments):
    held = ctypes.c_void_p(call(name, *arguments))
    try:
        yield held
    finally:
        free(held)


def key(secret):
    return pointer(CRYPTO.EVP_PKEY_free, "EVP_PKEY_new_raw_private_key", X25519, None, secret, ctypes.c_size_t(32))


class Exchange:
    """One side's half of a key exchange."""

    def __init__(self):
        self.secret = secrets.token_bytes(32)
        share, size = ctypes.create_string_buffer(32), ctypes.c_size_t(32)
        with key(self.secret) as own:
            call("EVP_PKEY_get_raw_public_key", own, share, ctypes.byref(size))
        self.share = share.raw

    def shared(self, peer_share):
        out, size = ctypes.create_string_buffer(32), ctypes.c_size_t(32)
        with key(self.secret) as own, \
                pointer(CRYPTO.EVP_PKEY_free, "EVP_PKEY_new_raw_public_key", X25519, None, peer_share, ctypes.c_size_t(32)) as peer, \
                pointer(CRYPTO.EVP_PKEY_CTX_free, "EVP_PKEY_CTX_new", own, None) as context:
            call("EVP_PKEY_derive_init", context)
            call("EVP_PKEY_derive_set_peer", context, peer)
            call("EVP_PKEY_derive", context, out, ctypes.byref(size))
        return out.raw


def hkdf(secret, salt, info):
    """32 bytes (RFC 5869)."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info + b"\1", "sha256")


def nonce(number):
    return struct.pack(">IQ", 0, number)


def seal(secret, number, text):
    out, tag, size = ctypes.create_string_buffer(len(text) + 1), ctypes.create_string_buffer(TAG), ctypes.c_int()
    with pointer(CRYPTO.EVP_CIPHER_CTX_free, "EVP_CIPHER_CTX_new") as context:
        call("EVP_EncryptInit_ex", context, ctypes.c_void_p(CRYPTO.EVP_aes_256_gcm()), None, secret, nonce(number))
        call("EVP_EncryptUpdate", context, out, ctypes.byref(size), text, len(text))
        call("EVP_EncryptFinal_ex", context, ctypes.create_string_buffer(TAG), ctypes.byref(size))
        call("EVP_CIPHER_CTX_ctrl", context, GET_TAG, TAG, tag)
    return out.raw[:len(text)] + tag.raw


def unseal(secret, number, sealed):
    text, tag = sealed[:-TAG], sealed[-TAG:]
    out, size = ctypes.create_string_buffer(len(text) + 1), ctypes.c_int()
    with pointer(CRYPTO.EVP_CIPHER_CTX_free, "EVP_CIPHER_CTX_new") as context:
        call("EVP_DecryptInit_ex", context, ctypes.c_void_p(CRYPTO.EVP_aes_256_gcm()), None, secret, nonce(number))
        call("EVP_CIPHER_CTX_ctrl", context, SET_TAG, TAG, tag)
        call("EVP_DecryptUpdate", context, out, ctypes.byref(size), text, len(text))
        call("EVP_DecryptFinal_ex", context, ctypes.create_string_buffer(TAG), ctypes.byref(size))
    return out.raw[:len(text)]
