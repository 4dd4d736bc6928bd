/* The parser of allocator settings must take any bytes: no crash, and what it accepts must survive writing and reading again. */
#include <stdlib.h>
#include <string.h>

#include "caching/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const tn_conf *conf) {
  char *text = NULL;
  tn_conf again;
  tn_caching *caching = NULL;
  tn_caching_config config = {.conf = *conf};
  if (tn_conf_format(conf, &text)) abort();
  for (uint32_t version = 0; version <= TN__VERSION_NEWEST; version += TN__VERSION_NEWEST)
    if (tn__conf_parse(text, version, &again, NULL) || !tn__conf_equal(conf, &again)) abort();
  if (tn_caching_new(&config, &caching)) abort();
  tn_caching_free(caching);
  tn_text_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  tn_conf conf;
  tn_error err = {0};
  int rc = tn_conf_parse(text, NULL, &conf, &err);
  if (rc == TN_OK)
    check_accepted(&conf);
  else if (err.code != TN_EINVAL || !err.msg[0] || strchr(err.msg, '\n'))
    abort();
  free(text);
  return 0;
}
