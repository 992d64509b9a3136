#!/usr/bin/env python3
"""A client that reads all rows of one statement and throws them away: the floor for a program that reads a table.

    bench/mysql-logical/discard.py SOCKET PASSWORD_FILE 'SELECT * FROM integer.t'
    bench/mysql-logical/discard.py SOCKET PASSWORD_FILE --each FILE

It speaks just enough of the protocol to log in over a Unix socket. The statement and COM_QUIT are sent together, so the end of
the rows is the end of the connection. Not one packet is taken apart.

--each sends every line of a file as a statement, on two connections, 50 before the first of their answers is read: the floor
for a program that opens or creates many tables. There it counts packets, because only so is the end of an answer known.
"""

import hashlib
import socket
import sys
import threading

# Long password, long flag, protocol 4.1, transactions, secure connection, plugin authentication.
CAPABILITIES = 0x1 | 0x4 | 0x200 | 0x2000 | 0x8000 | 0x80000
BUFFER = 1 << 20
AHEAD = 50


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


def connected(path, password_file):
    with open(password_file, "rb") as file:
        password = file.read().strip()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    log_in(connection, password)
    return connection


def read_answer(file):
    """OK, or columns and rows, each of them up to an EOF packet."""
    ends = 0
    while ends < 2:
        header = file.read(4)
        payload = file.read(int.from_bytes(header[:3], "little"))
        if payload[0] == 0xFF:
            sys.exit(f"the server refuses a statement: {payload[9:].decode(errors='replace')}")
        if payload[0] == 0 and not ends:
            return
        ends += payload[0] == 0xFE and len(payload) < 9


def each(path, password_file, statements):
    connection = connected(path, password_file)
    file = connection.makefile("rb", BUFFER)
    for begin in range(0, len(statements), AHEAD):
        batch = statements[begin:begin + AHEAD]
        for statement in batch:
            send(connection, 0, b"\x03" + statement)
        for _ in batch:
            read_answer(file)


def main():
    path, password_file, statement = sys.argv[1:4]
    if statement == "--each":
        with open(sys.argv[4], "rb") as file:
            lines = file.read().splitlines()
        threads = [threading.Thread(target=each, args=(path, password_file, lines[lane::2])) for lane in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return
    connection = connected(path, password_file)
    send(connection, 0, b"\x03" + statement.encode())
    send(connection, 0, b"\x01")
    buffer, total = bytearray(BUFFER), 0
    while count := connection.recv_into(buffer):
        total += count
    print(total)


if __name__ == "__main__":
    main()
