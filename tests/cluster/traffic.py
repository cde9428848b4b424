"""Programs for the hosts of a test network. Those that receive say "ready" first.

traffic.py tcp-receive ADDRESS PORT         one connection: JSON with bytes, first and last second
traffic.py tcp-send ADDRESS PORT BYTES
traffic.py udp-receive ADDRESS PORT         once a line is on stdin: the datagrams' numbers, in JSON
traffic.py udp-send ADDRESS PORT COUNT BYTES
"""

import json
import socket
import sys
import time

HUGE_BUFFER_BYTES = 64 << 20
# Root's SO_RCVBUF, without the system's limit; the module has no name for it.
SO_RCVBUFFORCE = 33


def tcp_receive(address: str, port: int) -> None:
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
    # The first byte only starts the clock.
    connection.recv(1)
    first, total = time.monotonic(), 0
    while chunk := connection.recv(1 << 16):
        total += len(chunk)
    print(json.dumps({"bytes": total, "first": first, "last": time.monotonic()}))


def tcp_send(address: str, port: int, total: int) -> None:
    with socket.create_connection((address, port)) as connection:
        connection.sendall(bytes(total))


def udp_receive(address: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        # All must fit, for nothing is read until told, and nothing may be lost but on the way.
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, HUGE_BUFFER_BYTES)
        receiver.bind((address, port))
        receiver.setblocking(False)
        print("ready", flush=True)
        sys.stdin.readline()
        numbers = []
        try:
            while True:
                numbers.append(int.from_bytes(receiver.recv(1 << 16)[:4], "big"))
        except BlockingIOError:
            print(json.dumps(numbers))


def udp_send(address: str, port: int, count: int, size: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(count):
            sender.sendto(number.to_bytes(4, "big").ljust(size, b"\0"), (address, port))


if __name__ == "__main__":
    role, address, *numbers = sys.argv[1:]
    globals()[role.replace("-", "_")](address, *map(int, numbers))
