/* verbs.c -- what each verb does, in the words of help and the man pages.  Its options are in options.h. */
#include <string.h>

#include "base/check.h"
#include "base/options.h"

#define RECIPE_TEXT                                                                                                         \
  "RECIPE is a Python file with a function training(**overrides) that returns tonnage.Training(model, optimizer, loss, "    \
  "batch), each a callable, so that it can be built without memory. KEY=VALUE arguments are its overrides: size=large "     \
  "batch=32."

static const char *const descriptions[TN_VERB_COUNT] = {
    [TN_VERB_ESTIMATE] = "Runs two training steps with shapes only (no data, no GPU needed), replays every allocation through a "
                         "model of PyTorch's caching allocator, and shows the peak: by category, where in the step it happens, "
                         "which modules hold most, and whether it fits the budget or the card.\n" RECIPE_TEXT,
    [TN_VERB_PLAN] = "Finds the cheapest set of changes with which the run fits the budget, and says what each one frees in "
                     "bytes and costs in milliseconds. Levers that give identical results, or the same maths in another order, "
                     "are on; what changes numerics has to be allowed.\n" RECIPE_TEXT,
    [TN_VERB_FIT] = "Plans if needed, applies the plan and trains, under an enforced budget. Ends with the peak and the step time, "
                    "predicted and measured. Ctrl-C stops after the step that runs.\n" RECIPE_TEXT,
    [TN_VERB_EXPLAIN] = "Says what was asked for, who holds the memory, and which action fits these numbers, with the bytes it gives. "
                        "Takes the message of an out-of-memory error (--message), or a FILE: a log that has such messages in it, of "
                        "any number of ranks. - is standard input.",
    [TN_VERB_TUNE] = "Replays a recorded run (a memory snapshot with its history) through an exact model of PyTorch's caching "
                     "allocator under a hundred settings, those that its PyTorch has, and shows the line to paste. Best is what "
                     "lets the run go through, then what waits least for memory to be given back, then what reserves least; of "
                     "settings within 2 % of each other the simplest.\n"
                     "FILE comes from torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(). It is "
                     "assumed that the program does the same whatever the settings.",
    [TN_VERB_REPLAY] = "Replays a recorded run (a memory snapshot with its history) through a model of PyTorch's caching allocator. "
                       "Under the recorded settings it says whether the model does every entry as recorded, and where it first "
                       "differs (exit status 1). With --conf or another --limit it predicts peaks, retries and where memory runs "
                       "out (exit status 1).\n"
                       "A history that starts late is replayed from what lived then, found by going backwards from the end.",
    [TN_VERB_DIFF] = "Compares the peaks of two memory snapshots, or of two captured traces: by category, and by the place that allocated "
                     "(of captures: by module and op); what changed most comes first.\n",
    [TN_VERB_CAPTURE] = "Writes what one training step does with device memory to one SQLite file: allocations, ops, modules, "
                        "saved tensors. report reads it, and so does any SQL tool.\n" RECIPE_TEXT,
    [TN_VERB_REPORT] = "Shows the estimate of a trace that capture, or --trace, wrote. Needs no PyTorch. Without --device, the "
                       "card that the trace was captured for.",
    [TN_VERB_PROFILE] = "Measures what estimates and plans need to know of a device: the memory that a process costs before its "
                        "first tensor, workspaces of the libraries, arithmetic rates, bandwidths.",
    [TN_VERB_HELP] = "Shows all verbs, or one verb with its options and examples.",
    [TN_VERB_VERSION] = "Prints the version and ends.",
};

static const char *const examples[TN_VERB_COUNT] = {
    [TN_VERB_ESTIMATE] = "tonnage estimate examples/bert.py size=large batch=32 seq=512 --device h200\n"
                         "tonnage estimate examples/gpt.py --device rtx4090 --budget 20GiB --json",
    [TN_VERB_PLAN] = "tonnage plan examples/bert.py size=large batch=32 seq=512 --device h200 --budget 12GiB -o plan.json\n"
                     "tonnage plan examples/gpt.py --budget 6GiB --allow precision",
    [TN_VERB_FIT] = "tonnage fit examples/bert.py size=large batch=32 seq=512 --budget 12GiB --steps 20\n"
                    "tonnage fit examples/bert.py size=large batch=32 seq=512 --plan plan.json",
    [TN_VERB_EXPLAIN] = "tonnage explain train.log\n"
                        "torchrun train.py 2>&1 | tonnage explain -\n"
                        "tonnage explain --message \"CUDA out of memory. Tried to allocate 2.00 GiB ...\"",
    [TN_VERB_TUNE] = "tonnage tune snapshot.pickle\n"
                     "tonnage tune snapshot.pickle --limit 22GiB --json",
    [TN_VERB_REPLAY] = "tonnage replay snapshot.pickle\n"
                       "tonnage replay snapshot.pickle --conf expandable_segments:True --limit 22GiB",
    [TN_VERB_DIFF] = "tonnage diff before.pickle after.pickle\n"
                     "tonnage diff small.trace large.trace --json",
    [TN_VERB_CAPTURE] = "tonnage capture examples/bert.py size=base --device h200 -o bert.trace",
    [TN_VERB_REPORT] = "tonnage report bert.trace --budget 8GiB\n"
                       "tonnage report bert.trace --device l4 --json",
    [TN_VERB_PROFILE] = "tonnage profile -o my-card.json",
    [TN_VERB_HELP] = "tonnage help fit",
};

const tn_verb_info *tn__verb_info(enum tn_verb verb) {
#define VERB_ROW(id, name, home, group, min, max, args, summary)                                                   \
  [TN_VERB_##id] = {name, TN_HOME_##home, TN_GROUP_##group, min, max, args, summary},
  static const tn_verb_info rows[TN_VERB_COUNT] = {TN_VERBS(VERB_ROW)};
#undef VERB_ROW
  tn_assert(verb < TN_VERB_COUNT);
  return &rows[verb];
}

const char *tn__verb_description(enum tn_verb verb) { return descriptions[verb]; }
const char *tn__verb_examples(enum tn_verb verb) { return examples[verb] ? examples[verb] : ""; }

enum tn_verb tn__verb_find(const char *name) {
  unsigned verb = 0;
  while (verb < TN_VERB_COUNT && strcmp(tn__verb_info((enum tn_verb)verb)->name, name) != 0) verb++;
  return (enum tn_verb)verb;
}

const char *tn__verb_nearest(const char *name) {
  const char *nearest = NULL;
  int best = strlen(name) < 4 ? 2 : 3; /* at most 1 or 2 edits */
  for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
    const char *candidate = tn__verb_info((enum tn_verb)verb)->name;
    int distance = tn__text_distance(name, candidate, 3);
    if (distance < best) best = distance, nearest = candidate;
  }
  return nearest;
}

const char *tn__verb_group_title(enum tn_verb_group group) {
  static const char *const titles[TN_GROUP_COUNT] = {"Before the run", "The run", "After the run", "Tools"};
  return titles[group];
}
