"""Run in a process of its own: which attention kernel the virtual card picks for each row of a CSV of answers; prints those that differ."""
import csv
import sys

from tonnage import devices, virtual_card

path, release = sys.argv[1], int(sys.argv[2])
device = devices.find("h200")
virtual_card.load(device)
virtual_card._arm(virtual_card._loaded, device, release)

import torch  # noqa: E402

from tonnage.fake import CaptureMode  # noqa: E402

NAMES = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn", -1: "error"}
BATCH, HEADS, KEY_HEADS = 2, 8, 2


def mask_of(kind: str, queries: int, keys: int, dtype: torch.dtype) -> torch.Tensor | None:
    if kind == "bool":
        return torch.empty(queries, keys, dtype=torch.bool, device="cuda")
    if kind == "float":
        return torch.empty(queries, keys, dtype=dtype, device="cuda")
    if kind == "padding":
        return torch.empty(BATCH, 1, 1, keys, dtype=torch.bool, device="cuda")
    return None


differ = count = 0
with CaptureMode():
    for row in csv.DictReader(open(path)):
        dtype = getattr(torch, row["dtype"])
        queries, keys, width = int(row["query_len"]), int(row["key_len"]), int(row["head_dim"])
        gradient, grouped = row["requires_grad"] == "True", row["grouped"] == "True"
        key_heads = KEY_HEADS if grouped else HEADS
        q = torch.empty(BATCH, HEADS, queries, width, dtype=dtype, device="cuda", requires_grad=gradient)
        k, v = (torch.empty(BATCH, key_heads, keys, width, dtype=dtype, device="cuda", requires_grad=gradient) for _ in range(2))
        choice = torch._fused_sdp_choice(q, k, v, mask_of(row["mask"], queries, keys, dtype), float(row["dropout"]), row["mask"] == "causal",
                                         enable_gqa=grouped)  # fmt: skip
        count += 1
        if NAMES[choice] != row["choice"]:
            differ += 1
            if differ <= 20:
                print(row, "answered", NAMES[choice])
print(f"{count} rows, {differ} differ")
sys.exit(1 if differ or not count else 0)
