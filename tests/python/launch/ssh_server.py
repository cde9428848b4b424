"""A real sshd for tests, on loopback, with keys, port and settings of its own.

It answers under several addresses (127.0.0.2, 127.0.0.3), which are other hosts for tlrun: workers
there are started through ssh, and nothing of this user's own ssh is used or changed.
"""

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from cluster.wait import until
from tensorlightning.launch.processes import descendants

HOSTS = ("127.0.0.2", "127.0.0.3")
START_SECONDS = 20

_SERVER = """\
{addresses}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication {password}
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PrintMotd no
LogLevel VERBOSE
"""

_CLIENT = """\
Host *
  Port {port}
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


class SshServer:
    """An sshd that runs until close(), and the words that make tlrun use it."""

    def __init__(self, folder: Path, password: bool = False):
        """password: it would take one, were there somebody to type it."""
        self._folder = folder
        self.port = _free_port()
        for name in ("host_key", "client_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True)
        public = (folder / "host_key.pub").read_text()
        known = (f"[{host}]:{self.port} {public}" for host in HOSTS)
        (folder / "known_hosts").write_text("".join(known))
        self.let_in((folder / "client_key.pub").read_text())
        addresses = "\n".join(f"ListenAddress {host}:{self.port}" for host in HOSTS)
        wanted = "yes" if password else "no"
        server = _SERVER.format(addresses=addresses, folder=folder, password=wanted)
        (folder / "sshd_config").write_text(server)
        (folder / "config").write_text(_CLIENT.format(port=self.port, folder=folder))
        self._start()

    @property
    def options(self) -> list[str]:
        """For tlrun."""
        return ["--ssh", shlex.join(["ssh", "-F", str(self._folder / "config")])]

    def let_in(self, keys: str) -> None:
        """Those who have one of these keys, and nobody else."""
        (self._folder / "authorized_keys").write_text(keys)

    def forget_hosts(self) -> None:
        """The client does not know the server's key any more."""
        (self._folder / "known_hosts").write_text("")

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def sessions(self) -> list[int]:
        """Processes that descend from sshd: connections, agents, workers."""
        return [e.pid for e in descendants(self._process.pid) if not e.is_zombie]

    def cut(self) -> None:
        """All connections break, without a word to either end."""
        for pid in self.sessions():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd":
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        left = [*self.sessions(), self._process.pid]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(START_SECONDS)

    def _start(self) -> None:
        if getpass.getuser() == "root":
            # sshd's own, for privilege separation; a package's service makes it at boot.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert sshd, "there is no sshd: install openssh-server"
        with (self._folder / "log").open("wb") as log:
            # By its full path, or it can't start itself again for each connection.
            self._process = subprocess.Popen(
                [sshd, "-D", "-e", "-f", str(self._folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        listens = until(lambda: _answers(self.port) or self._process.poll() is not None)
        assert listens and self._process.poll() is None, self.log()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        return probe.getsockname()[1]


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOSTS[-1], port), 1):
        return True
    return False
