/* html.c -- the explain report as one HTML file that needs nothing else.  See html.h. */
#include "report/html.h"

#include <string.h>

#include "base/error.h"
#include "report/html_pack.h"
#include "trace/file.h"

/* What the packed histories of all devices may take: a third more as base64. */
enum { HISTORY_BYTES_MAX = 3 << 20, DEVICES_MAX = 64 };

/* ---- the data ------------------------------------------------------------------------------------------------------------ */

static void names_write(tn_text *out, const char *member, int count, const char *(*name)(int)) {
  tn__text_printf(out, "\"%s\":[", member);
  for (int i = 0; i < count; i++) {
    if (i) tn__text_add(out, ",");
    tn__pack_string(out, name(i));
  }
  tn__text_add(out, "],");
}

static void parts_write(tn_text *out) {
#define PART_NOTE(name, text, note) note,
  static const char *const notes[] = {TN__PARTS(PART_NOTE)};
#undef PART_NOTE
  names_write(out, "parts", TN__PART_COUNT, tn__part_name);
  tn__text_add(out, "\"part_notes\":[");
  for (int i = 0; i < TN__PART_COUNT; i++) {
    if (i) tn__text_add(out, ",");
    tn__pack_string(out, notes[i]);
  }
  tn__text_add(out, "],");
}

static void facts_write(tn_text *out, const tn_trace *trace) {
  static const char *const keys[][2] = {{"PyTorch", "schema"}, {"PYTORCH_CUDA_ALLOC_CONF", "allocator.PYTORCH_CUDA_ALLOC_CONF"}};
  int count = 0;
  tn__text_add(out, "\"facts\":[");
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *value = tn_trace_meta(trace, keys[i][1]);
    if (!value || !*value) continue;
    if (count++) tn__text_add(out, ",");
    tn__text_printf(out, "[\"%s\",", keys[i][0]);
    tn__pack_string(out, value);
    tn__text_add(out, "]");
  }
  tn__text_add(out, "],");
}

static void streams_write(tn_text *out, const tn_trace *trace) {
  size_t count;
  const tn_stream *streams = tn_trace_table(trace, TN_TABLE_STREAM, &count);
  tn__text_add(out, "\"streams\":[");
  for (size_t i = 0; i < count; i++) tn__text_printf(out, "%s\"%llx\"", i ? "," : "", (unsigned long long)streams[i].handle);
  const tn_pool *pools = tn_trace_table(trace, TN_TABLE_POOL, &count);
  tn__text_add(out, "],\"pools\":[");
  for (size_t i = 0; i < count; i++)
    tn__text_printf(out, "%s\"(%llu, %llu)\"", i ? "," : "", (unsigned long long)pools[i].first, (unsigned long long)pools[i].second);
  tn__text_add(out, "],");
}

/* ---- the devices --------------------------------------------------------------------------------------------------------- */

/* Records of devices with anything to show. */
static int devices_gather(const tn_trace *trace, tn_vec *records) {
  size_t count;
  const tn_device *devices = tn_trace_table(trace, TN_TABLE_DEVICE, &count);
  for (uint32_t i = 0; i < count && records->count < DEVICES_MAX; i++)
    if (devices[i].segments_count > 0 || devices[i].entries_count > 0) TN_TRY(tn__vec_push(records, &i));
  return TN_OK;
}

/* Each analysis is large; only the first one stays, for its stacks: which of them are the same does not depend on the device. */
static int devices_write(tn_text *out, const tn_trace *trace, const tn_vec *records, const tn_html_options *options) {
  const uint32_t *list = TN_VEC(records, uint32_t);
  const tn__analysis_options analysis_options = {.total_bytes = options ? options->total_bytes : 0};
  uint64_t bytes_max = (options && options->history_bytes_max ? options->history_bytes_max : HISTORY_BYTES_MAX) / records->count;
  tn__analysis first = {0};
  tn__page_stacks stacks;
  tn__page_stacks_init(&stacks, trace, &first.stacks);
  uint32_t left_out = 0;
  tn__text_add(out, "\"devices\":[");
  int rc = TN_OK;
  for (size_t i = 0; i < records->count && !rc; i++) {
    tn__analysis other = {0}, *analysis = i ? &other : &first;
    rc = tn__analysis_init(analysis, trace, list[i], &analysis_options);
    if (i) tn__text_add(out, ",");
    if (!rc) rc = tn__page_device(out, &stacks, analysis, bytes_max);
    if (i) tn__analysis_deinit(&other);
  }
  tn__text_add(out, "],");
  if (!rc) rc = tn__page_stacks_write(&stacks, out, &left_out);
  tn__text_printf(out, ",\"stacks_left_out\":%u", left_out);
  tn__page_stacks_deinit(&stacks);
  tn__analysis_deinit(&first);
  return rc;
}

static int data_write(tn_text *out, const tn_trace *trace, const tn_vec *records, const tn_html_options *options) {
  tn__text_add(out, "{\"tonnage_html\":1,\"version\":\"" TN_VERSION "\",\"name\":");
  tn__pack_string(out, options && options->name ? options->name : "");
  tn__text_add(out, ",");
  facts_write(out, trace);
  names_write(out, "categories", TN_CATEGORY_COUNT, tn_category_name);
  parts_write(out);
  streams_write(out, trace);
  TN_TRY(devices_write(out, trace, records, options));
  tn__text_add(out, "}");
  return out->failed;
}

/* ---- the page ------------------------------------------------------------------------------------------------------------ */

static uint8_t hex_digit(char c) { return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10); }

/* 'sha256-...' as a content security policy has it. */
static void sum_write(tn_text *out, const tn__page_file *file) {
  uint8_t sum[32];
  for (size_t i = 0; i < sizeof sum; i++) sum[i] = (uint8_t)(hex_digit(file->sha256[2 * i]) << 4 | hex_digit(file->sha256[2 * i + 1]));
  tn__text_add(out, "'sha256-");
  tn__pack_base64(out, sum, sizeof sum);
  tn__text_add(out, "'");
}

static void file_write(tn_text *out, const tn__page_file *file) { tn__text_add_n(out, (const char *)file->data, file->bytes); }

/* viewer.html has {{name}} where something is to be put. */
static int slot_write(tn_text *out, const char *name, size_t len, const tn_text *data) {
  static const struct {
    const char *name;
    const tn__page_file *file;
    int is_sum;
  } slots[] = {{"style", &tn__page_style, 0}, {"script", &tn__page_script, 0}, {"style-sum", &tn__page_style, 1}, {"script-sum", &tn__page_script, 1}};
  if (len == 4 && memcmp(name, "data", 4) == 0) {
    tn__text_add_n(out, data->data, data->len);
    return 1;
  }
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
    if (strlen(slots[i].name) != len || memcmp(slots[i].name, name, len) != 0) continue;
    slots[i].is_sum ? sum_write(out, slots[i].file) : file_write(out, slots[i].file);
    return 1;
  }
  return 0;
}

static void page_write(tn_text *out, const tn_text *data) {
  const char *at = (const char *)tn__page_html.data, *end = at + tn__page_html.bytes;
  while (at < end) {
    const char *open = memmem(at, (size_t)(end - at), "{{", 2);
    const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
    if (!close) break;
    tn__text_add_n(out, at, (size_t)(open - at));
    if (!slot_write(out, open + 2, (size_t)(close - open - 2), data)) tn__text_add_n(out, open, (size_t)(close + 2 - open));
    at = close + 2;
  }
  tn__text_add_n(out, at, (size_t)(end - at));
}

int tn_report_html(const tn_trace *trace, const tn_html_options *options, char **out, tn_error *err) {
  tn_vec records;
  tn_text data, page;
  tn__vec_init(&records, sizeof(uint32_t));
  tn__text_init(&data);
  tn__text_init(&page);
  int rc = devices_gather(trace, &records);
  if (!rc && records.count == 0) {
    rc = tn__error_set(err, TN_EINVAL, "has no allocator history of any device");
    goto out;
  }
  if (!rc) rc = data_write(&data, trace, &records, options);
  if (!rc) {
    page_write(&page, &data);
    rc = tn__text_take(&page, out);
  }
  if (rc) rc = tn__error_set(err, rc, NULL);
out:
  tn__text_deinit(&page);
  tn__text_deinit(&data);
  tn__vec_deinit(&records);
  return rc;
}

int tn_report_html_save(const tn_trace *trace, const tn_html_options *options, const char *path, tn_error *err) {
  char *page = NULL;
  TN_TRY(tn_report_html(trace, options, &page, err));
  int rc = tn__file_write(path, page, strlen(page), err);
  tn_text_free(page);
  return rc;
}
