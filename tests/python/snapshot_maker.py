"""Makes small memory snapshots of every schema, as Python objects, and pickles them as PyTorch's C++ writer would."""

from __future__ import annotations

import random
import struct
from typing import Any

# The first version of PyTorch that writes such a snapshot, as the reader names it.
SCHEMAS = ("2.0", "2.1+", "2.3+", "2.6+", "2.8+", "2.9+", "2.10+", "2.12+")
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom")
NAMES = ("forward", "linear", "\u00fcber", "a\nb", "<lambda>", "", "x" * 300, "nul\0here", "\U0001f6a2", "lone\udc80")
FILES = ("/opt/model/train.py", "/opt/\u6a21\u578b/net.py", "")


class Maker:
    def __init__(self, draw: random.Random, schema: str) -> None:
        self.draw = draw
        self.level = SCHEMAS.index(schema)
        self.frames = [self.frame() for _ in range(6)]
        self.stacks = [draw.choices(self.frames, k=draw.randrange(5)) for _ in range(5)]
        self.streams = (0, 7, 94_000_000_000_000, -5 if draw.random() < 0.2 else 9)

    def has(self, schema: str) -> bool:
        return self.level >= SCHEMAS.index(schema)

    def frame(self) -> dict[str, Any]:
        frame = {"filename": self.draw.choice(FILES), "line": self.draw.choice((1, 77, 2**20, 0, -1)), "name": self.draw.choice(NAMES)}
        if self.draw.random() < 0.2:
            frame |= {"fx_node_op": "call_function", "fx_node_info": {"filename": {"nested": [1, (2, {"deep": None})]}}}
        return self.shuffled(frame)

    def shuffled(self, keys: dict[str, Any]) -> dict[str, Any]:
        items = list(keys.items())
        self.draw.shuffle(items)
        return dict(items)

    def stack(self) -> list[dict[str, Any]]:
        """Sometimes the same list, sometimes an equal one."""
        stack = self.draw.choice(self.stacks)
        return stack if self.draw.random() < 0.6 else list(stack)

    def size(self) -> int:
        return self.draw.choice((0, 1, 512, 4096, 2**20, 2**31, 2**33 + 512))

    def pool(self) -> tuple[int, int]:
        return self.draw.choice(((0, 0), (0, 0), (0, 3), (2, 0), (2**40, 1)))

    def entry(self) -> dict[str, Any]:
        action = self.draw.choice((*ACTIONS[:1], "free") if self.level == 0 else ACTIONS)
        if self.has("2.12+") and self.draw.random() < 0.2:
            action = self.draw.choice(("annotate", "an_action_of_tomorrow"))
        address = self.draw.choice((140_000_000_000_000, 512, 2**63 + 4096, -4096 % 2**64, -512))
        entry: dict[str, Any] = {"action": action, "device_free" if action == "oom" else "addr": address, "size": self.size()}
        entry["stream"] = self.draw.choice(self.streams)
        if self.draw.random() < 0.7:
            entry["frames"] = self.stack()
        if self.has("2.3+"):
            entry["time_us"] = self.draw.randrange(2**51)
        if self.has("2.8+"):
            entry["compile_context"] = self.draw.choice(("N/A", "0/1", ""))
        if self.has("2.10+"):
            entry["user_metadata"] = self.draw.choice(("", "step 1", "\u00b5", {"a": 1}, {}))
        if self.has("2.12+"):
            entry["pool_id"] = self.pool()
            if self.draw.random() < 0.3:
                entry["forward_frames"] = ['  File "m.py", line 3, in f\n    x = y\n', '  File "n.py", line 12\n', "no frame"][: self.draw.randrange(4)]
        return self.shuffled(entry) if self.draw.random() < 0.5 else entry

    def block(self, address: int) -> dict[str, Any]:
        state = self.draw.choice(("active_allocated", "active_pending_free", "active_awaiting_free", "inactive"))
        block: dict[str, Any] = {"size": 512 * self.draw.randrange(1, 9), "state": state}
        if self.level == 0:
            block["history"] = [{"addr": address, "real_size": 100, "frames": self.stack()} for _ in range(self.draw.randrange(3))]
        else:
            block |= {"address": address, "requested_size": self.draw.randrange(512), "frames": self.stack()}
        return self.shuffled(block)

    def segment(self, address: int, device: int) -> dict[str, Any]:
        blocks, total = [], 0
        for _ in range(self.draw.randrange(1, 5)):
            blocks.append(self.block(address + total))
            total += blocks[-1]["size"]
        segment = {
            "device": device,
            "address": address,
            "total_size": total,
            "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
            "stream": self.draw.choice(self.streams),
            "segment_type": self.draw.choice(("small", "large")),
            "blocks": blocks,
        }
        if self.has("2.1+"):
            segment |= {"requested_size": 7, "segment_pool_id": self.pool(), "is_expandable": self.draw.random() < 0.5, "frames": self.stack()}
        return self.shuffled(segment)

    def segments(self, devices: int) -> list[dict[str, Any]]:
        out, address = [], self.draw.choice((1 << 21, 140_000_000_000_000, 2**63 - (1 << 22)))
        for _ in range(self.draw.randrange(5)):
            out.append(self.segment(address, self.draw.randrange(devices)))
            address += 1 << 21
        self.draw.shuffle(out)
        return out

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "PYTORCH_CUDA_ALLOC_CONF": self.draw.choice(("", "expandable_segments:True", 'odd "text"')),
            "max_split_size": self.draw.choice((-1, 67108864)),
            "garbage_collection_threshold": self.draw.choice((0.0, 0.6)),
            "expandable_segments": self.draw.random() < 0.5,
            "roundup_power2_divisions": {"1": 0, "2": 4},
        }
        if self.has("2.9+"):
            settings["graph_capture_record_stream_reuse"] = False
        if self.has("2.12+"):
            settings |= {"trace_alloc_overflowed": [True, False], "trace_alloc_max_entries": 2**63}
        return settings

    def annotation(self) -> dict[str, Any]:
        return self.shuffled({"name": "step", "stage": self.draw.choice(("START", "END")), "device": self.draw.randrange(3), "time_us": 5, "mine": None})

    def snapshot(self) -> dict[str, Any]:
        devices = self.draw.randrange(1, 4)
        top: dict[str, Any] = {
            "segments": self.segments(devices),
            "device_traces": [[self.entry() for _ in range(self.draw.choice((0, 1, 7)))] for _ in range(self.draw.randrange(4))],
        }
        if self.has("2.3+"):
            top["allocator_settings"] = self.settings()
        if self.has("2.6+"):
            top["external_annotations"] = [self.annotation() for _ in range(self.draw.randrange(3))]
        if self.has("2.12+"):
            top |= {"host_segments": self.segments(1), "host_traces": [[self.entry() for _ in range(self.draw.randrange(3))]]}
        if self.draw.random() < 0.3:
            top["a_key_of_tomorrow"] = [{"segments": [self.segment(4096, 0)]}, {1: 2, (3, 4): [None, 1.5, 10**30]}]
        return self.shuffled(top)


# ---- the C++ writer ------------------------------------------------------------------------------------------------------


def pickle_as_cpp(value: Any) -> bytes:
    """Protocol 2 as torch::jit::Pickler writes it: no batches, texts remembered by value, eight bytes for every long integer."""
    out: list[bytes] = [b"\x80\x02"]
    texts: dict[str, int] = {}
    objects: dict[int, int] = {}

    def remember() -> int:
        index = len(texts) + len(objects)
        out.append(b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index))
        return index

    def recall(index: int) -> None:
        out.append(b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index))

    def put(value: Any) -> None:
        if isinstance(value, str):
            if value in texts:
                return recall(texts[value])
            data = value.encode("utf-8", "surrogatepass")
            out.append(b"X" + struct.pack("<I", len(data)) + data)
            texts[value] = remember()
        elif value is None or isinstance(value, bool):
            out.append(b"N" if value is None else b"\x88" if value else b"\x89")
        elif isinstance(value, float):
            out.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, int):
            if 0 <= value < 256:
                out.append(b"K" + bytes([value]))
            elif 0 <= value < 65536:
                out.append(b"M" + struct.pack("<H", value))
            elif -(2**31) <= value < 2**31:
                out.append(b"J" + struct.pack("<i", value))
            else:
                out.append(b"\x8a\x08" + struct.pack("<Q", value % 2**64))
        elif id(value) in objects:
            recall(objects[id(value)])
        else:
            container(value)
        return None

    def container(value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                put(item)
            out.append(b"\x86")
            return
        out.append(b"}" if isinstance(value, dict) else b"]")
        objects[id(value)] = remember()
        if value:
            out.append(b"(")
            for item in value.items() if isinstance(value, dict) else value:
                for part in item if isinstance(value, dict) else (item,):
                    put(part)
            out.append(b"u" if isinstance(value, dict) else b"e")

    put(value)
    return b"".join([*out, b"."])
