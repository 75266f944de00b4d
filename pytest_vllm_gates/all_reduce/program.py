"""One rank of the all-reduce that runs before a server of several ranks boots.

A separate program, for a lane's own interpreter: torch and the standard library only. torchrun
(`python -m torch.distributed.run … program.py JOB`) starts it once per rank. JOB is a JSON
file: `folder`, `backend` (nccl or gloo), `sizes` in bytes, `rounds`, `limit_s`. Each rank
writes `folder/rank-<RANK>.jsonl`, a line when it begins a step and one for each fact: the file
shows where a rank hangs.

Element i of rank r's tensor is (r + 1)(1 + i mod 251), in fp32. The sum is exact up to 365 ranks, a
rank that is missing from it shows by its own amount, and a part that lands in another's place shows
by its index.
"""

import fcntl
import ipaddress
import json
import os
import socket
import struct
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

PATTERN = 251
SIOCGIFADDR = 0x8915  # linux/sockios.h
ESTABLISHED = "01"  # include/net/tcp_states.h
LOOPBACK = "lo"
STEP, FOUND = "step", "found"
FP32_BYTES = 4


class Diary:
    """The steps and facts of a rank, each written at once."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = folder / f"rank-{rank}.jsonl"
        self._number = 0

    def step(self, name: str) -> None:
        """Record the step that begins."""
        self._write({STEP: name, "number": self._number, "at_s": time.monotonic()})
        self._number += 1

    def record(self, **facts: Any) -> None:
        """Record facts."""
        self._write({FOUND: facts})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def in_words(size: int) -> str:
    """Return a size in words: 8 KiB, 16 MiB."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def reduce_one(torch: Any, device: Any, size: int, rounds: int) -> dict[str, Any]:
    """Sum tensors of one size: once with a check, `rounds` times by the clock, once more."""
    ones = 1 + torch.arange(size // FP32_BYTES, device=device) % PATTERN
    pattern = ones.to(torch.float32)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def sum_once() -> dict[str, Any] | None:
        tensor = pattern * (rank + 1)
        torch.distributed.all_reduce(tensor)
        wrong = (tensor != pattern * (world * (world + 1) // 2)).nonzero()
        if not len(wrong):
            return None
        at = int(wrong[0])
        unit = float(pattern[at])
        wanted = unit * world * (world + 1) / 2
        got = float(tensor[at])
        return {"at": at, "got": got, "wanted": wanted, "unit": unit, "count": len(wrong)}

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    first = sum_once()
    tensor = torch.zeros_like(pattern)
    torch.distributed.barrier()
    wait()
    began = time.perf_counter()
    for _ in range(rounds):
        torch.distributed.all_reduce(tensor)
    wait()
    round_s = (time.perf_counter() - began) / rounds
    return {"bytes": size, "round_s": round_s, "wrong": first or sum_once()}


def main() -> None:
    """Run as one rank."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    diary = Diary(Path(job["folder"]), rank)
    diary.record(pid=os.getpid(), host=socket.gethostname())
    try:
        take_part(job, local, diary)
    except BaseException as error:
        words = str(error).strip().splitlines() or [""]
        diary.record(failed=f"{type(error).__name__}: {words[0]}")
        raise


def take_part(job: dict[str, Any], local: int, diary: Diary) -> None:
    """Go through all steps."""
    diary.step("the import of torch")
    import torch  # noqa: PLC0415 - a step that can hang
    import torch.distributed  # noqa: PLC0415

    diary.step("its device")
    device = torch.device("cpu")
    if job["backend"] != "gloo":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    diary.record(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        torch=str(torch.__version__),
    )
    diary.step("the rendezvous")
    torch.distributed.init_process_group(job["backend"], timeout=timedelta(seconds=job["limit_s"]))
    diary.step("the first all-reduce")  # which sets up NCCL's links
    torch.distributed.all_reduce(torch.ones(1, device=device))
    for size in job["sizes"]:
        diary.step(f"the all-reduce of {in_words(size)}")
        diary.record(summed=reduce_one(torch, device, size, job["rounds"]))
    diary.record(addresses=own_addresses())
    diary.step("the farewell")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    diary.step("done")


def own_addresses() -> list[str]:
    """Return the local addresses of this process's TCP connections, each with its interface.

    The connection to the store where the ranks met is left out: it is not the path of the data.
    """
    store = int(os.environ["MASTER_PORT"])
    mine = {inode for fd in Path("/proc/self/fd").iterdir() if (inode := inode_of(fd))}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            local, remote, state, inode = words[1], words[2], words[3], words[9]
            ports = {int(end.rpartition(":")[2], 16) for end in (local, remote)}
            if inode in mine and state == ESTABLISHED and store not in ports:
                addresses.add(address_of(local.rpartition(":")[0]))
    by_address = interfaces()
    return sorted(
        f"{LOOPBACK if address.is_loopback else by_address.get(str(address), '?')} {address}"
        for address in addresses
    )


def inode_of(descriptor: Path) -> str | None:
    """Return the inode of a socket; None for any other file."""
    try:
        link = os.readlink(descriptor)  # noqa: PTH115 - the result is not a path
    except OSError:
        return None
    return link[len("socket:[") : -1] if link.startswith("socket:[") else None


def address_of(words: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address as /proc/net/tcp writes it: words of four bytes, each back to front."""
    raw = b"".join(
        struct.pack("=I", int(words[start : start + 8], 16)) for start in range(0, len(words), 8)
    )
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def interfaces() -> dict[str, str]:
    """Return the interfaces of this machine by their addresses."""
    names = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue
            names[socket.inet_ntoa(answer[20:24])] = name
    table = Path("/proc/net/if_inet6")
    for line in table.read_text(encoding="ascii").splitlines() if table.exists() else ():
        words = line.split()
        names[str(ipaddress.IPv6Address(bytes.fromhex(words[0])))] = words[-1]
    return names


if __name__ == "__main__":
    main()
