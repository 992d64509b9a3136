#!/usr/bin/env python3
"""A client that reads all rows of one statement and throws them away: the floor for a program that reads a table.

    bench/mysql-logical/discard.py SOCKET PASSWORD_FILE 'SELECT * FROM integer.t'

It speaks just enough of the protocol to log in over a Unix socket. The statement and COM_QUIT are sent together, so the end of
the rows is the end of the connection. Not one packet is taken apart.
"""

import hashlib
import socket
import sys

# Long password, long flag, protocol 4.1, transactions, secure connection, plugin authentication.
CAPABILITIES = 0x1 | 0x4 | 0x200 | 0x2000 | 0x8000 | 0x80000
BUFFER = 1 << 20


def packet(connection):
    header = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(int.from_bytes(header[:3], "little"), socket.MSG_WAITALL), header[3]


def send(connection, number, payload):
    connection.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)


def scrambled(plugin, password, nonce):
    """The answer to the server's nonce."""
    def xor(one, other):
        return bytes(a ^ b for a, b in zip(one, other))

    if not password:
        return b""
    if plugin == "caching_sha2_password":
        def digest(text):
            return hashlib.sha256(text).digest()
        return xor(digest(password), digest(digest(digest(password)) + nonce))

    def digest(text):
        return hashlib.sha1(text).digest()
    return xor(digest(password), digest(nonce + digest(digest(password))))


def log_in(connection, password):
    greeting, _ = packet(connection)
    rest = greeting[greeting.index(0, 1) + 1:]
    nonce, plugin = rest[4:12] + rest[31:43], rest[44:].split(b"\0")[0].decode()
    answer = scrambled(plugin, password, nonce)
    send(connection, 1, CAPABILITIES.to_bytes(4, "little") + BUFFER.to_bytes(4, "little") + b"\x2d" + bytes(23) + b"root\0"
         + bytes([len(answer)]) + answer + plugin.encode() + b"\0")
    while True:
        answer, number = packet(connection)
        if answer[0] == 0x00:
            return
        if answer[0] == 0xFE:
            plugin, nonce = answer[1:].split(b"\0", 1)
            send(connection, number + 1, scrambled(plugin.decode(), password, nonce[:20]))
        elif answer[0] == 0x01 and answer[1] == 4:
            send(connection, number + 1, password + b"\0")  # The server allows it on a Unix socket.
        elif answer[0] != 0x01:
            sys.exit(f"the server refuses the login: {answer[9:].decode(errors='replace')}")


def main():
    path, password_file, statement = sys.argv[1:]
    with open(password_file, "rb") as file:
        password = file.read().strip()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    log_in(connection, password)
    send(connection, 0, b"\x03" + statement.encode())
    send(connection, 0, b"\x01")
    buffer, total = bytearray(BUFFER), 0
    while count := connection.recv_into(buffer):
        total += count
    print(total)


if __name__ == "__main__":
    main()
