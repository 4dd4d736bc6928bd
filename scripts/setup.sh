#!/bin/sh
# setup.sh -- what the build and the tests need: Debian packages and a private .venv.  Quick when it has run before.
#
#   scripts/setup.sh [apt] [venv] [browser]        apt and venv without arguments
#
# browser: Chromium, for the tests of the HTML report.  They skip without one, so that it is no error when there is none.
#
# PYTHON  the interpreter that .venv is made with (python3)
# TORCH   the requirement for PyTorch (torch==2.13.0)
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch==2.13.0}
PACKAGES="cmake ninja-build g++ pkg-config libsqlite3-dev libjansson-dev zlib1g-dev libcmocka-dev python3-venv"
TEST_PACKAGES="numpy pytest hypothesis transformers==5.24.* scikit-learn ruff mypy scikit-build-core"

say() { echo "setup: $*" >&2; }

# Is what the package gives there already?  Tools may come from elsewhere than from Debian.
have() {
  case $1 in
    cmake) command -v cmake ;;
    ninja-build) command -v ninja ;;
    g++) command -v gcc && command -v g++ ;;
    pkg-config) command -v pkg-config ;;
    libsqlite3-dev) pkg-config --exists sqlite3 ;;
    libjansson-dev) pkg-config --exists jansson ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    python3-venv) "$PYTHON" -c 'import ensurepip, venv' ;;
    *) false ;;
  esac >/dev/null 2>&1
}

setup_apt() {
  apt_install "$PACKAGES"
}

setup_browser() {
  for name in chromium chromium-browser google-chrome google-chrome-stable chrome headless_shell "${CHROMIUM:-}"; do
    [ -z "$name" ] || ! command -v "$name" >/dev/null || return 0
  done
  (apt_install chromium) || say "no Chromium: tests/python/test_html.py will skip"
}

apt_install() {
  missing=""
  for package in $1; do
    have "$package" || missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null; then
    say "missing, and there is no apt-get here:$missing"
    exit 2
  fi
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      sudo=sudo
    else
      say "missing packages; run: sudo apt-get install$missing"
      exit 2
    fi
  fi
  say "installing$missing"
  # shellcheck disable=SC2086 -- a list of words
  install="$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing"
  $install >/dev/null 2>&1 || { $sudo apt-get update -qq && $install >/dev/null; }
}

setup_venv() {
  stamp=.venv/.tonnage-stamp
  want="$TORCH $TEST_PACKAGES $PWD"
  if [ -f $stamp ] && [ "$(cat $stamp)" = "$want" ] && .venv/bin/python3 -c '' 2>/dev/null; then
    return 0
  fi
  say "making .venv (PyTorch is large: this takes minutes the first time)"
  .venv/bin/python3 -m pip --version >/dev/null 2>&1 || "$PYTHON" -m venv --clear .venv
  pip=".venv/bin/python3 -m pip --disable-pip-version-check install -qq"
  # PyTorch first and by its exact version: a package that depends on it would bring in another build.
  $pip "$TORCH"
  # shellcheck disable=SC2086 -- a list of words
  $pip "$TORCH" $TEST_PACKAGES
  # The package is used from the source tree, without an installation that could be out of date.
  .venv/bin/python3 - <<'END'
import os, sysconfig
with open(os.path.join(sysconfig.get_path("purelib"), "tonnage-source.pth"), "w") as file:
    file.write(os.path.join(os.getcwd(), "python") + "\n")
END
  printf '%s\n' "$want" >$stamp
}

[ $# -gt 0 ] || set -- apt venv
for part in "$@"; do
  case $part in
    apt | venv | browser) "setup_$part" ;;
    *) say "unknown part $part"; exit 2 ;;
  esac
done
