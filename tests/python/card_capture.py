"""Run in a process of its own: captures small models for a card and prints what came out, as JSON."""

import json
import sys

from tonnage import devices, virtual_card

device = devices.find(sys.argv[1])
virtual_card.load(device)

import torch  # noqa: E402

import small_models  # noqa: E402
from reading import Reader, peak  # noqa: E402
from tonnage import tables as T  # noqa: E402
from tonnage.capture import capture_tables  # noqa: E402
from tonnage.errors import Error  # noqa: E402


def attention(model, batch):
    q = model(batch[0]).view(2, 4, 8, 16)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=small_models_dropout).sum()


small_models_dropout = 0.0
small_models.ALL["attention"] = small_models.Training(small_models.Mlp, small_models.sgd, attention, small_models.rows(32))
small_models.ALL["attention bf16"] = small_models.autocast(small_models.ALL["attention"])
small_models.ALL["moved"] = small_models.Training(
    lambda: small_models.Mlp().to("cpu").half().float().cuda(), small_models.sgd, small_models.square, small_models.rows()
)

small_models.ALL["recurrent"] = small_models.Training(
    lambda: torch.nn.LSTM(32, 32), small_models.sgd, lambda m, b: m(b[0])[0].sum(), small_models.rows()
)

out = {}
for name in sys.argv[2:]:
    try:
        reader = Reader(capture_tables(small_models.ALL[name], device))
    except Error as error:
        out[name] = {"error": str(error)}
        continue
    out[name] = {
        "peak": [peak(step) for step in reader.lives()],
        "left": [sum(step) for step in reader.lives()],
        "ops": sorted({op.name for op in reader.ops()}),
        "random": sorted({op.name for op in reader.ops() if op.flags & T.OP_RANDOM}),
        "fixed": sorted({op.name for op in reader.ops(phases=("forward", "loss")) if not op.flags & T.OP_REBUILDABLE}),
        "workspaces": [
            (reader.texts[b[2]], reader.texts[reader.tables.op[b[1]][0]], T.PHASES[reader.tables.op[b[1]][3]])
            for b in reader.tables.block
            if b[4] == T.WORKSPACE and reader.texts[b[2]].startswith("cublas")
        ],
        "host": sorted({b[0] for b in reader.tables.block if b[5] & T.BLOCK_HOST}),
        "rates": sorted({op.rate for op in reader.ops() if op.flops}),
        "devices": sorted({part for op in reader.ops() for part in ("cuda:0", "cpu") if f'"device":"{part}"' in op.args}),
    }
print(json.dumps(out))
