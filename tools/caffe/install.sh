#!/bin/bash
# Installs a stock Caffe, as Debian built it, into a folder of its own; the system stays as it is.
#
#   tools/caffe/install.sh PREFIX
#
# Caffe left Debian after bullseye, whose packages are still on Debian's mirrors: they are taken from
# the mirror that this machine uses, with signatures checked, and unpacked together with the libraries
# they were built with. Says why and ends with 75 if they can't be had. Does nothing when they are
# there; what an interrupted run has left is made anew.
set -euo pipefail

readonly PREFIX="${1:?usage: install.sh PREFIX}"
readonly SUITE=bullseye
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly CANNOT_BE_HAD=75
# To run it, with what these need; to build against it, just these.
readonly -a RUN=(caffe libopenblas0-serial)
readonly -a BUILD=(libcaffe-dev libprotobuf-dev protobuf-compiler libprotoc23 libgoogle-glog-dev
  libgflags-dev libboost1.74-dev libblas-dev)
# The system's own are newer, and one process has room for one of each; and programs that libraries
# merely want to be installed.
readonly NOT_UNPACKED='^(libc6|libgcc-s1|libstdc\+\+6|libcrypt1|gcc-[0-9]+-base|libc-bin|libpam.*|dpkg|tar|perl.*|debconf|install-info|sensible-utils|ucf|adduser|passwd|lsb-base|base-.*|coreutils|sed|grep|debianutils|mime-support|mailcap|python3.*|libpython3.*-(stdlib|minimal)|fonts-.*|media-types|openssl|ca-certificates)_'

say() { printf 'caffe: %s\n' "$*"; }

cannot() {
  printf 'caffe: %s\n' "$*" >&2
  exit "$CANNOT_BE_HAD"
}

# Of this machine's own sources, the archive that has Debian's main part.
mirror() {
  apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "Debian" && $3 == "Debian" && $4 == "main" {print $1; exit}'
}

private_apt() {
  local program=$1
  shift
  "$program" -q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State=$work/state" -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" \
    -o "Dir::State::status=$work/status" -o APT::Install-Recommends=false \
    -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false -o Debug::NoLocking=true "$@"
}

download() {
  local from
  from=$(mirror)
  [[ -n "$from" ]] || cannot "none of this machine's apt sources is Debian's main archive"
  [[ -r "$KEYRING" ]] || cannot "$KEYRING is missing: install debian-archive-keyring"
  mkdir -p "$work"/{state,lists/partial,cache/archives/partial}
  # Nothing is installed yet, as far as this apt knows: what it fetches depends on no machine.
  : >"$work/status"
  echo "deb [signed-by=$KEYRING] $from $SUITE main" >"$work/sources.list"
  private_apt apt-get update >"$work/log" 2>&1 && ! grep -q '^\(W\|E\|Err\)' "$work/log" ||
    cannot "$SUITE, the last Debian with Caffe, can't be had: $(grep -m1 '^\(E\|W\|Err\)' "$work/log")"
  say "1/3 downloading it and its libraries, 100 MB"
  private_apt apt-get install -y --download-only "${RUN[@]}" >"$work/log" 2>&1 ||
    cannot "apt-get says: $(tail -1 "$work/log")"
  (cd "$work/cache/archives" && private_apt apt-get download "${BUILD[@]}") >"$work/log" 2>&1 ||
    cannot "apt-get says: $(tail -1 "$work/log")"
}

unpack() {
  local package
  say "2/3 unpacking $(find "$work/cache/archives" -name '*.deb' | wc -l) packages"
  for package in "$work"/cache/archives/*.deb; do
    [[ "${package##*/}" =~ $NOT_UNPACKED ]] || dpkg -x "$package" "$making"
  done
}

# What maintainer scripts would have done, and what two releases of protoc disagree about.
mend() {
  local libraries="$making/usr/lib/x86_64-linux-gnu" header
  say "3/3 putting its libraries where it finds them"
  for library in "$making"/usr/lib/lib*.so*; do
    ln -sf "../${library##*/}" "$libraries/"
  done
  for library in libblas.so.3 liblapack.so.3 libopenblas.so.0; do
    ln -sf "openblas-serial/$library" "$libraries/$library"
  done
  ln -sf libcaffe.so.1.0.0 "$libraries/libcaffe.so"
  find "$making/usr/include" -name cblas-netlib.h -execdir ln -sf cblas-netlib.h cblas.h \;
  header=$(find "$making/usr/include" -name caffe.pb.h)
  sed -i 's/AuxiliaryParseTableField/AuxillaryParseTableField/g
    s/::PROTOBUF_NAMESPACE_ID::ConstStringParam/const std::string\&/g' "$header"
  mkdir -p "$making/bin"
  cp "$(dirname "$0")/caffe.sh" "$making/bin/caffe"
  for program in convert_imageset convert_mnist_data compute_image_mean; do
    ln -s caffe "$making/bin/$program"
  done
}

[[ -e "$PREFIX/.complete" ]] && exit
[[ "$(dpkg --print-architecture)" == amd64 ]] || cannot "it is unpacked for amd64 only"
making="$PREFIX.making"
work=$(mktemp -d -t tensorlightning-caffe.XXXXXX)
readonly making work
trap 'rm -rf "$work"' EXIT
rm -rf "$making" "$PREFIX"
mkdir -p "$making"
download
unpack
mend
"$making/bin/caffe" --version >"$work/log" 2>&1 || cannot "it does not start: $(tail -1 "$work/log")"
touch "$making/.complete"
mv "$making" "$PREFIX"
say "$("$PREFIX/bin/caffe" --version | head -1), as Debian built it, is in place"
