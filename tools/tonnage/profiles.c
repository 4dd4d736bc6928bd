/* profiles.c -- where a device's profile lies: $TONNAGE_PROFILES, the source tree, a wheel, or an installed prefix. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd.h"

enum { PATH_BYTES = 4096, PROFILE_BYTES_MAX = 1 << 20 };

static int file_read(const char *path, char **out, tn_error *err) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return tn__error_set(err, errno == EACCES ? TN_EPERM : errno == ENOENT ? TN_ENOENT : TN_EIO, "%.150s: %s", path, strerror(errno));
  int rc = TN_OK;
  char *text = tn__mem_alloc(PROFILE_BYTES_MAX + 1);
  size_t len = text ? fread(text, 1, PROFILE_BYTES_MAX + 1, file) : 0;
  if (!text)
    rc = tn__error_set(err, TN_ENOMEM, NULL);
  else if (ferror(file))
    rc = tn__error_set(err, TN_EIO, "%.150s: cannot be read", path);
  else if (len > PROFILE_BYTES_MAX || memchr(text, '\0', len))
    rc = tn__error_set(err, TN_EFORMAT, "%.150s: not a device profile", path);
  fclose(file);
  if (rc) {
    tn__mem_free(text);
    return rc;
  }
  text[len] = '\0';
  *out = text;
  return TN_OK;
}

/* pattern may hold a * for the Python version of a wheel's folder. */
static int find_in(const char *pattern, const char *name, char *out) {
  char full[PATH_BYTES];
  glob_t found;
  int len = snprintf(full, sizeof full, "%s/%s.json", pattern, name);
  if (len < 0 || (size_t)len >= sizeof full || glob(full, 0, NULL, &found)) return 0;
  int ok = found.gl_pathc > 0 && strlen(found.gl_pathv[0]) < PATH_BYTES && access(found.gl_pathv[0], R_OK) == 0;
  if (ok) strcpy(out, found.gl_pathv[0]);
  globfree(&found);
  return ok;
}

static int is_name(const char *name) {
  size_t len = strlen(name);
  return len && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_+.") == len && name[0] != '.';
}

/* The first file that exists, in path of PATH_BYTES.  0: none. */
static int profile_find(const char *name, char *path) {
  static const char *const places[] = {
      "%s/../python/tonnage/profiles",                       /* build/ in the source tree */
      "%s/../lib/python3*/site-packages/tonnage/profiles",   /* bin/ of a virtual environment */
      "%s/../lib/python3*/dist-packages/tonnage/profiles",
      "%s/../share/tonnage/profiles",
  };
  const char *own = getenv("TONNAGE_PROFILES");
  char dir[PATH_BYTES / 2], pattern[PATH_BYTES];
  if (own && *own && find_in(own, name, path)) return 1;
  cmd_own_dir(dir, sizeof dir);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(pattern, sizeof pattern, places[i], dir);
#pragma GCC diagnostic pop
    if (find_in(pattern, name, path)) return 1;
  }
  return 0;
}

int cmd_profile_load(const char *name, tn_profile *out, tn_error *err) {
  char path[PATH_BYTES], *json = NULL;
  size_t len = strlen(name);
  int is_file = strchr(name, '/') || (len > 5 && strcmp(name + len - 5, ".json") == 0);
  if (is_file) {
    if (len >= sizeof path) return tn__error_set(err, TN_EINVAL, "the profile's path is too long");
    memcpy(path, name, len + 1);
  } else if (!is_name(name) || !profile_find(name, path)) {
    return tn__error_set(err, TN_ENOENT, "there is no profile for device \"%.60s\"; measure one there with tonnage profile", name);
  }
  TN_TRY(file_read(path, &json, err));
  int rc = tn_profile_parse(json, out, err);
  tn__mem_free(json);
  if (rc && err) {
    tn_error why = *err;
    tn__error_set(err, rc, "%.100s: %.130s", path, why.msg);
  }
  return rc;
}
