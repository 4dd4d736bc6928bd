/* Records may hold anything: tn_trace_check() refuses them, or every index in them is safe to follow. */
#include <stdlib.h>
#include <string.h>

#include "records.h"
#include "trace/lives.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int ignore(void *user, tn__life_event life) {
  (void)user, (void)life;
  return 0;
}

/* Follows everything once; a sanitizer sees what goes astray, a time limit what goes round. */
static uint64_t follow(const tn_trace *trace) {
  size_t module_count, op_count, value_count, slot_count;
  const tn_module *modules = tn_trace_table(trace, TN_TABLE_MODULE, &module_count);
  const tn_op *ops = tn_trace_table(trace, TN_TABLE_OP, &op_count);
  const uint32_t *refs = tn_trace_table(trace, TN_TABLE_REF, NULL);
  const tn_block *blocks = tn_trace_table(trace, TN_TABLE_BLOCK, NULL);
  const tn_value *values = tn_trace_table(trace, TN_TABLE_VALUE, &value_count);
  const tn_slot *slots = tn_trace_table(trace, TN_TABLE_SLOT, &slot_count);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < module_count; i++)
    for (uint32_t at = i; at != TN_NONE; at = modules[at].parent) sum += modules[at].name;
  for (size_t i = 0; i < op_count; i++) {
    for (uint32_t k = 0; k < ops[i].inputs_count; k++) sum += values[refs[ops[i].inputs_at + k]].version;
    for (uint32_t k = 0; k < ops[i].outputs_count; k++) sum += refs[ops[i].outputs_at + k];
  }
  for (size_t i = 0; i < value_count; i++) {
    sum += blocks[values[i].block].bytes;
    if (values[i].op != TN_NONE && refs[ops[values[i].op].outputs_at + values[i].output] != i) abort();
  }
  for (size_t i = 0; i < slot_count; i++) sum += blocks[slots[i].block].bytes;
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tn_trace *trace = NULL;
  tn_error err = {0};
  if (tn_trace_new(&trace)) return 0;
  if (tn_trace_add_strings(trace, "a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k", 22, 11)) abort();
  if (records_fill(trace, data, size) == TN_OK) {
    int rc = tn_trace_check(trace, &err);
    if (rc == TN_OK && tn__lives(trace, NULL, ignore, NULL)) abort();
    if (rc == TN_OK) {
      volatile uint64_t sum = follow(trace);
      (void)sum;
    }
    if (rc != err.code || (rc && !err.msg[0])) abort();
  }
  tn_trace_free(trace);
  return 0;
}
